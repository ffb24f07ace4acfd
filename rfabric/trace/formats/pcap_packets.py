"""The packets of a capture, pcap or pcapng, read one by one by scapy."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ...errors import RFabricError
from ...files import open_text

MOST_KEPT = 65535  # bytes of a packet that scapy hands on
TSOFFSET = 14  # pcapng's option of an interface: s that are added to its stamps
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
                raise Scapy_Exception("the file ends early, or what follows is no packet")
    except Scapy_Exception as error:
        raise RFabricError(
            f"no valid capture after packet {read}: {error}; capture it again, or repair it with "
            "editcap"
        ) from error


class _Counted:
    """A file that knows whether a read brought less than was asked for: scapy only stops then, and
    where a packed file is damaged.
    """

    def __init__(self, file: BinaryIO):
        self.file, self.short, self.bytes = file, False, 0

    def read(self, size: int) -> bytes:
        """As of a file."""
        try:
            data = self.file.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise RFabricError(f"cannot be read after byte {self.bytes}: {error}") from error
        self.bytes += len(data)
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


def _ng(reader, file: _Counted) -> Iterator[KeptPacket]:
    _mend(reader, file)
    first = None
    for data, told in reader:
        timed = None
        if told.tshigh is not None:
            clock: _StampUnit = told.tsresol
            ticks = (told.tshigh << 32 | told.tslow) + clock.offset * clock.ticks
            first = ticks // clock.ticks if first is None else first
            timed = (ticks - first * clock.ticks) / clock.ticks
        yield told.linktype, data, told.wirelen, timed


class _StampUnit(NamedTuple):
    """An interface's: ticks a second, and seconds to add to its stamps."""

    ticks: int
    offset: int


def _mend(reader, file: _Counted) -> None:
    """What scapy takes otherwise than pcapng says: interfaces are those of their section, stamps
    have an offset, and one whose snap length is 0 keeps packets whole. A block that is cut short or
    not valid is the end of the file to scapy, and a packet of no interface is none.
    """
    begin, describe = reader._read_block_shb, reader.blocktypes[1]
    read_block = reader._read_block

    def section() -> None:
        reader.interfaces.clear()
        begin()

    def interface(block: bytes, size: int) -> None:
        describe(block, size)
        link, most, options = reader.interfaces[-1]
        said = reader._read_options(block[8:]).get(TSOFFSET, b"")
        offset = int.from_bytes(said, "big" if reader.endian == ">" else "little", signed=True)
        options["tsresol"] = _StampUnit(options["tsresol"], offset)
        reader.interfaces[-1] = link, most or MOST_KEPT, options

    def whole(size: int):
        before = file.bytes
        try:
            return read_block(size)
        except EOFError:
            file.short |= file.bytes > before
            raise

    def described(interface: int) -> bool:
        if interface >= len(reader.interfaces):
            raise Scapy_Exception(f"the next is of interface {interface}, which is not described")
        return True

    from scapy.error import Scapy_Exception

    reader._read_block_shb, reader.blocktypes[1] = section, interface
    reader._read_block, reader._check_interface_id = whole, described
