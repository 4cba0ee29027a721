"""Times of all_reduces over scripts/wan.sh, for `bench/hosts/simulated --check`.

Of QCCL, uncompressed unless a codec is named, in its steady state: with cubic, one connection a pair, and the window
that it takes once it knows the line. Where calls or runs differed, a row has the least and the most.
"""

from dataclasses import dataclass

WAN = "scripts/wan.sh on two cores"
DECISION = "docs/decisions/0021-many-hosts.md"


@dataclass(frozen=True)
class Measured:
    line: str
    hosts: int
    bytes: str
    queue: str  # "product": what the line holds in a round trip, at least 256 KiB
    algorithm: str
    least: float  # milliseconds
    most: float
    source: str
    codec: str = "none"
    packet: str = "64K"  # the most that TCP hands over at once


MEASURED = [
    Measured("50mbit+10ms", 8, "4M", "product", "sra", 1320, 1320, DECISION),
    Measured("50mbit+10ms", 8, "4M", "product", "ring", 1285, 1350, WAN),
    Measured("50mbit+40ms", 4, "4M", "product", "sra", 1122, 1122, WAN),
    Measured("50mbit+40ms", 4, "4M", "product", "ring", 1130, 1172, WAN),
    Measured("50mbit+40ms", 8, "4M", "product", "sra", 1345, 1345, WAN),
    Measured("50mbit+40ms", 8, "4M", "product", "ring", 1324, 1521, WAN),
    Measured("25mbit+1ms", 8, "1M", "64K", "sra", 680, 700, WAN, packet="2K"),
    Measured("25mbit+1ms", 8, "1M", "64K", "ring", 652, 652, WAN, packet="2K"),
    Measured("10mbit+1ms", 16, "512K", "64K", "sra", 930, 1100, WAN),
    Measured("10mbit+1ms", 16, "512K", "64K", "ring", 858, 858, WAN),
    Measured("20mbit+10ms", 16, "2M", "product", "sra", 1860, 1860, WAN),
    Measured("20mbit+10ms", 16, "2M", "product", "ring", 1730, 1772, WAN),
    Measured("50mbit+40ms", 2, "4M", "product", "sra", 750, 750, DECISION),
    Measured("50mbit+10ms", 8, "4M", "product", "sra", 184, 184, DECISION, codec="int:bits=4"),
    Measured("20mbit+10ms", 16, "2M", "product", "sra", 252, 252, WAN, codec="int:bits=4"),
]
