# Hosts of 8 GPUs (H100) with NVLink: for `qccl plan show` and `simulate --profile`, with --rate for the line between hosts.
# NVLink's rate is its data sheet's. The GPU's codecs and copies are by arithmetic (docs/gpu-hosts.md): nobody has
# measured them on such a host yet.
machine hosts of 8 H100, by arithmetic
inside_Gbps 3600
inside.latency_us 20
wire.latency_us 30
wire.frame_us 5
wire.rank_GBps 20
copy_GBps 1000
add_GBps 500
codec_GBps cast 80 80
codec_GBps int 40 40
codec_GBps minmax 40 40
