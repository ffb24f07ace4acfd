"""The packets of a capture, pcap or pcapng, read one by one by scapy."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ...errors import RFabricError
from ...files import open_text

MOST_KEPT = 65535  # bytes of a packet that scapy hands on
# (link type, bytes kept, bytes on the wire, s from the second of the first packet, as a float holds
# no nanoseconds since 1970; None: no time is told)
KeptPacket = tuple[int, bytes, int, float | None]


def packets_of(path: Path) -> Iterator[KeptPacket]:
    """Packets of either kind of capture; RFabricError for one that ends early."""
    try:
        from scapy.error import Scapy_Exception
        from scapy.utils import RawPcapNgReader, RawPcapReader
    except ImportError as error:
        raise RFabricError("captures are read by scapy: pip install scapy") from error
    read = 0
    try:
        with open_text(path) as text:
            file = _Counted(text.buffer)
            reader = RawPcapReader(file)  # of the newer kind, where the file is
            newer = isinstance(reader, RawPcapNgReader)
            for packet in (_ng if newer else _old)(reader, file):
                read += 1
                yield packet
            if file.short:
                raise Scapy_Exception("the file ends early")
    except Scapy_Exception as error:
        raise RFabricError(
            f"no valid capture after packet {read}: {error}; capture it again, or repair it with "
            "editcap"
        ) from error


class _Counted:
    """A file that knows whether a read brought less than was asked for: scapy only stops then."""

    def __init__(self, file: BinaryIO):
        self.file, self.short = file, False

    def read(self, size: int) -> bytes:
        """As of a file."""
        data = self.file.read(size)
        if data and len(data) < size:
            self.short = True
        return data


def _old(reader, file: _Counted) -> Iterator[KeptPacket]:
    link, unit, first = reader.linktype & 0xFFFF, 1e-9 if reader.nano else 1e-6, None
    for data, (sec, part, wire, kept) in reader:
        first = sec if first is None else first
        if len(data) < kept <= MOST_KEPT:
            file.short = True
        yield link, data, wire, sec - first + part * unit


def _ng(reader, _: _Counted) -> Iterator[KeptPacket]:
    _mend(reader)
    first = None
    for data, told in reader:
        timed = None
        if told.tshigh is not None:
            ticks = told.tshigh << 32 | told.tslow
            first = ticks // told.tsresol if first is None else first
            timed = (ticks - first * told.tsresol) / told.tsresol
        yield told.linktype, data, told.wirelen, timed


def _mend(reader) -> None:
    """What scapy takes otherwise than pcapng says: interfaces are those of their section, and one
    whose snap length is 0 keeps packets whole.
    """
    begin, describe = reader._read_block_shb, reader.blocktypes[1]

    def section() -> None:
        reader.interfaces.clear()
        begin()

    def interface(block: bytes, size: int) -> None:
        describe(block, size)
        link, most, options = reader.interfaces[-1]
        reader.interfaces[-1] = link, most or MOST_KEPT, options

    reader._read_block_shb, reader.blocktypes[1] = section, interface
