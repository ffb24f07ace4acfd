"""What packets hold, in both worlds that send them: real ones, and ns-3's. Bytes."""

MTU = 9000  # of IP packets: jumbo frames, as GPU fabrics use; to emulate costs by packet
HEADERS = 20 + 20  # IPv4, TCP
PAYLOAD = MTU - HEADERS
# A connection may have so much under way. TCP can offer this with a window scale of 1; the scale
# is fixed when a connection opens, so it lasts, while the kernel lifts other limits (cwnd clamp,
# window clamp) as it learns. More makes sharing slower to settle, less breaks lone flows when a
# busy host delays packets.
RECEIVE_WINDOW = 131070
FIRST_SEGMENTS = 10  # of a TCP connection's first window, whatever their size (Linux; RFC 6928)
UNSCALED_WINDOW = 65535  # of whoever answers a SYN, until the first acknowledgement (RFC 7323, 2.2)
WAY = 6  # cables of the longest way through three tiers
