# The machine on which scripts/wan.sh was measured (bench/hosts/measured.py). Its two cores run all hosts and the lines
# between them, and carry 1.6 Gbit/s in all: as if each core sent and received 0.2 GB/s.
machine two cores that run all hosts of scripts/wan.sh
wire.rank_GBps 0.2
