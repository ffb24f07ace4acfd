"""A Kineto file read event by event: it may be larger than memory."""

from collections.abc import Callable
from typing import BinaryIO

HEAD = ("distributedInfo", "schemaVersion", "deviceProperties")
MARK = b"\xef\xbb\xbf"  # before UTF-8, as some editors write it
CHUNK, BEFORE = 1 << 20, 1 << 24  # bytes: read at once; within which HEAD is sought, but its first


def streamed(file: BinaryIO, events: Callable[[dict], None]) -> dict:
    """Hand on the events one by one; the values of HEAD that stand beside them. What is no whole
    number is a Decimal.
    """
    import ijson

    values = {key: ijson.sendable_list() for key in HEAD}
    heads = {key: ijson.items_coro(values[key], key) for key in HEAD}
    every = ijson.sendable_list()
    parser = ijson.items_coro(every, "traceEvents.item")
    read = 0
    while part := file.read(CHUNK):
        part = part if read else part.removeprefix(MARK)
        read += len(part)
        for key in [key for key in heads if values[key] or (read > BEFORE and key != HEAD[0])]:
            del heads[key]
        for one in (*heads.values(), parser):
            one.send(part)
        for event in every:
            events(event)
        del every[:]
    parser.close()  # an error where the file ends early
    return {key: own[0] for key, own in values.items() if own}
