"""Where the controller listens, and where it is sought, unless somebody says otherwise."""

LOOPBACK = "127.0.0.1"
OFP_PORT = 6653  # IANA's number for OpenFlow
REST_PORT = 8080
REST_URL = f"http://{LOOPBACK}:{REST_PORT}"
