"""Where the controller listens, and where it is sought, unless somebody says otherwise."""

LOOPBACK = "127.0.0.1"
OFP_PORT = 6653  # IANA's number for OpenFlow
REST_PORT = 8080
REST_URL = f"http://{LOOPBACK}:{REST_PORT}"


def endpoint(host: str, port: int) -> str:
    """As URLs have it: an IPv6 address stands in brackets.

    >>> endpoint("::", 8080)
    '[::]:8080'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
