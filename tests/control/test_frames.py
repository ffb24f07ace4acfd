"""ARP, read and answered."""

import pytest
from ground import SMALL

from rfabric.control import frames
from rfabric.fabric import host_mac


def test_arp_is_read_and_answered():
    asker, target = bytes.fromhex("000000000001"), host_mac(7)
    request = (
        b"\xff" * 6 + asker + bytes.fromhex("08060001080006040001") + asker + bytes([10, 0, 0, 1])
    )
    request += bytes(6) + bytes([10, 0, 0, 8])
    packet = frames.parse(request)
    assert (packet.src, packet.dst, packet.request) == ("10.0.0.1", "10.0.0.8", True)
    hosts = frames.Hosts(SMALL)
    assert hosts.mac(packet.dst) == target and hosts.name("10.0.0.9") is None
    reply = frames.arp_reply(target, packet.dst, packet.src_mac, packet.src)
    back = frames.parse(reply)
    assert len(reply) == 60 and reply[:6] == asker and not back.request
    assert (back.src, back.dst, back.src_mac.hex(":")) == ("10.0.0.8", "10.0.0.1", target)
    assert (
        frames.parse(request[:30]) is None
        and frames.parse(b"\x00" * 12 + b"\x86\xdd" + bytes(60)) is None
    )


@pytest.mark.parametrize("more", [1, 26, 100])
def test_what_follows_the_addresses_of_a_frame_changes_nothing(more):
    hosts = [bytes([10, 0, 0, 1]), bytes([10, 0, 0, 8])]
    macs = bytes.fromhex("000000000008000000000001")
    ip = macs + bytes.fromhex("080045") + bytes(11) + b"".join(hosts)
    arp = frames.arp_reply(host_mac(7), "10.0.0.8", macs[6:], "10.0.0.1")[:42]
    for frame in (ip, arp):
        assert frames.parse(frame + bytes(range(more))) == frames.parse(frame) is not None
