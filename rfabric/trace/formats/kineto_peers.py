"""Kineto: between which ranks a message goes.

    "Process Group Ranks": "[1, 9, 17, 25]", "Dst Rank": 2        of rank 9: to rank 17

c10d counts peers and roots in the process group; versions of PyTorch write these, or ranks of the
job, and none says which. Those numbers hold that can be in all messages: a peer is of the group,
and not the rank itself, which is one of the two.
"""

from collections.abc import Collection, Iterable, Sequence

EITHER = (
    "sends and receives whose peers may be counted in the job or in its group: taken as the job's"
)
SaidEnds = tuple[str, object, object]  # send or recv, what "Src Rank" and "Dst Rank" say
SaidByGroup = tuple[int | None, dict[tuple[int, ...], list[SaidEnds]]]  # of a rank, by group


def message_of(kind: str, args: dict) -> SaidEnds:
    """A message as its kernel says it."""
    return kind, args.get("Src Rank"), args.get("Dst Rank")


def counted_in_groups(every: Iterable[SaidByGroup]) -> bool:
    """Whether the ends of all ranks' messages are counted in their groups: they are none of the
    job's.
    """
    read = [_readings(one, own, group) for own, said in every for group, one in said.items()]
    return all(inside for _, inside in read) and not all(job for job, _ in read)


def either(messages: SaidByGroup) -> int:
    """How many messages of a rank go elsewhere where their ends are counted in their groups, which
    can be as well.
    """
    own, said = messages
    return sum(
        ends_of(one, group, own, False) != ends_of(one, group, own, True)
        for group, every in said.items()
        if all(_readings(every, own, group))
        for one in every
    )


def _readings(
    every: Sequence[SaidEnds], own: int | None, group: Sequence[int]
) -> tuple[bool, bool]:
    """Whether the messages of a rank in a group can be counted in the job, and in the group."""
    place = group.index(own) if own in group else None
    job = all(_can_be(_ends(one, own), own, group) for one in every)
    return job, all(_can_be(_ends(one, place), place, range(len(group))) for one in every)


def ends_of(
    message: SaidEnds, group: Sequence[int], own: int | None, in_group: bool
) -> tuple[int, ...]:
    """(source, destination) as ranks of the job; () where they are not known."""
    if not in_group:
        ends = _ends(message, own)
        return ends if all(type(r) is int and r in group for r in ends) else ()  # type: ignore
    ends = _ends(message, group.index(own) if own in group else None)
    return tuple(group[rank] for rank in ends)  # type: ignore[index]


def root_of(args: dict, group: Sequence[int]) -> int | None:
    """The rank of the job that sends or receives all, where one is told."""
    root = args.get("Root Rank", args.get("Root"))
    if type(root) is not int or root in group:
        return root if type(root) is int else None
    return group[root] if 0 <= root < len(group) else None


def _ends(message: SaidEnds, own: int | None) -> tuple[object, object]:
    """A kernel may say its peer alone: the other end is the rank itself."""
    kind, src, dst = message
    return (own if src is None and kind == "send" else src,
            own if dst is None and kind == "recv" else dst)  # fmt: skip


def _can_be(ends: tuple[object, object], own: int | None, ranks: Collection[int]) -> bool:
    src, dst = ends
    return (
        all(type(rank) is int and rank in ranks for rank in ends)
        and src != dst
        and (own is None or own in ends)
    )
