"""Speed of PyTorch DistributedDataParallel on the nets of bench/peers.sh.

mpiexec -n RANKS python3 ddp.py NET BATCH STEPS WARM [best] [bf16] [compiled] [fp16|powersgd]: BATCH images a rank and step. Rank 0 prints images/s.
Images are random numbers in memory, so nothing is loaded or decoded. Without a word behind it as PyTorch's tutorial has it;
best: images and weights with channels last, an optimizer over all tensors at once, gradients that are views of DDP's buckets,
and a graph that is declared not to change; bf16: that, and autocast to bf16; compiled: that, by torch.compile; fp16, powersgd: that, and DDP's hook
of this name (PowerSGD of rank 4, as cmn_compress=powersgd) for gradients on their way.
"""
import contextlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

name, (batch, steps, warm) = sys.argv[1], map(int, sys.argv[2:5])
words = sys.argv[5:]
best, bf16 = bool(words), "bf16" in words
rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
torch.manual_seed(rank)
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29517")
os.environ.setdefault("USE_LIBUV", "0")  # Debian builds PyTorch 2 without it
dist.init_process_group("gloo", rank=rank, world_size=size)


def conv(inputs, outputs, size=3):
    return [nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1)]


class Yolo(nn.Module):
    """yolov3-tiny."""

    def __init__(self):
        super().__init__()
        pool = nn.MaxPool2d(2)
        self.first = nn.Sequential(*conv(3, 16), pool, *conv(16, 32), pool, *conv(32, 64), pool, *conv(64, 128), pool, *conv(128, 256))
        self.second = nn.Sequential(pool, *conv(256, 512), nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(2, 1), *conv(512, 1024),
                                    *conv(1024, 256, 1))
        self.coarse = nn.Sequential(*conv(256, 512), nn.Conv2d(512, 255, 1))
        self.up = nn.Sequential(*conv(256, 128, 1), nn.Upsample(scale_factor=2))
        self.fine = nn.Sequential(*conv(384, 256), nn.Conv2d(256, 255, 1))

    def forward(self, x):
        first = self.first(x)
        second = self.second(first)
        return self.coarse(second), self.fine(torch.cat((self.up(second), first), 1))


def loss(output, labels):
    if name == "yolo":  # a loss of boxes costs Darknet more
        return sum((o * o).sum() for o in output)
    return nn.functional.cross_entropy(output, labels)


if name == "yolo":
    shape = (3, 224, 224)
    net = Yolo()
elif name == "mlp":
    shape = (784,)
    net = nn.Sequential(nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10))
else:
    shape = (3, 28, 28)
    net = nn.Sequential(
        *conv(3, 128), *conv(128, 128), *conv(128, 128), nn.MaxPool2d(2), nn.Dropout(0.5),
        *conv(128, 256), *conv(256, 256), *conv(256, 256), nn.MaxPool2d(2), nn.Dropout(0.5),
        *conv(256, 512), *conv(512, 512), *conv(512, 512), nn.Dropout(0.5),
        nn.Conv2d(512, 10, 1), nn.LeakyReLU(0.1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
images, labels = list(torch.rand(8, batch, *shape)), torch.randint(10, (8, batch))
if best and len(shape) == 3:
    net = net.to(memory_format=torch.channels_last)
    images = [i.contiguous(memory_format=torch.channels_last) for i in images]
if "compiled" in words:
    net = torch.compile(net)
if size > 1:
    net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=best, static_graph=best)
    if "fp16" in words:
        net.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if "powersgd" in words:
        net.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2),
                               powerSGD_hook.powerSGD_hook)
optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9, weight_decay=0.0001, **({"foreach": True} if best else {}))

for step in range(warm + steps):
    if step == warm:
        dist.barrier()
        begin = time.perf_counter()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext():
        output = net(images[step % 8])
    output = [o.float() for o in output] if isinstance(output, tuple) else output.float()
    loss(output, labels[step % 8]).backward()
    optimizer.step()
dist.barrier()
if rank == 0:
    print(size * batch * steps / (time.perf_counter() - begin))
