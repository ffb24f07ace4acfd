"""What several tests of the controller are given."""

import threading
from http.server import ThreadingHTTPServer

import pytest
from ground import RealClock, Served

from rfabric.control.rest import Handler


@pytest.fixture
def server():
    """REST over fake switches on a real socket."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Served()
    served.core.clock = served.switches.clock = RealClock()
    server.core, server.health, server.served = served.core, served.health, served
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
