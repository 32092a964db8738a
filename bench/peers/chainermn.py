"""Speed of ChainerMN on the nets of bench/peers.sh.

mpiexec -n RANKS python3 chainermn.py NET BATCH STEPS WARM: BATCH images a rank and step. Rank 0 prints images/s.
Images are random numbers in memory, so nothing is loaded or decoded. Needs numpy, mpi4py and Chainer 7 (PYTHONPATH
may name its tree). `naive` is the communicator that ChainerMN has for processors.
"""
import sys
import time

sys.path.pop(0)  # this file has the name of the package
import numpy as np

for old, new in (("bool", bool), ("int", int), ("float", float), ("object", object)):
    if old not in np.__dict__:
        setattr(np, old, new)  # Chainer 7 is older than numpy 1.24
import chainer
import chainer.functions as F
import chainer.links as L
import chainermn

name, (batch, steps, warm) = sys.argv[1], map(int, sys.argv[2:5])
comm = chainermn.create_communicator("naive")
np.random.seed(comm.rank)


def conv(inputs, outputs, size=3):
    return [L.Convolution2D(inputs, outputs, size, pad=size // 2, nobias=True), L.BatchNormalization(outputs),
            lambda x: F.leaky_relu(x, 0.1)]


def pool(x):
    return F.dropout(F.max_pooling_2d(x, 2), 0.5)


class Yolo(chainer.Chain):
    """yolov3-tiny, with its loss: one of boxes costs Darknet more."""

    def __init__(self):
        super().__init__()
        half = lambda x: F.max_pooling_2d(x, 2)
        same = lambda x: F.max_pooling_2d(F.pad(x, ((0, 0), (0, 0), (0, 1), (0, 1)), "constant"), 2, 1)
        with self.init_scope():
            self.first = chainer.Sequential(*conv(3, 16), half, *conv(16, 32), half, *conv(32, 64), half, *conv(64, 128), half,
                                            *conv(128, 256))
            self.second = chainer.Sequential(half, *conv(256, 512), same, *conv(512, 1024), *conv(1024, 256, 1))
            self.coarse = chainer.Sequential(*conv(256, 512), L.Convolution2D(512, 255, 1))
            self.up = chainer.Sequential(*conv(256, 128, 1), lambda x: F.unpooling_2d(x, 2, cover_all=False))
            self.fine = chainer.Sequential(*conv(384, 256), L.Convolution2D(256, 255, 1))

    def forward(self, x, labels):
        first = self.first(x)
        second = self.second(first)
        outputs = self.coarse(second), self.fine(F.concat((self.up(second), first)))
        return sum(F.sum(o * o) for o in outputs)


if name == "yolo":
    shape, layers = (3, 224, 224), None
elif name == "mlp":
    shape = (784,)
    layers = [L.Linear(784, 1000), F.relu, L.Linear(1000, 1000), F.relu, L.Linear(1000, 10)]
else:
    shape = (3, 28, 28)
    layers = [*conv(3, 128), *conv(128, 128), *conv(128, 128), pool, *conv(128, 256), *conv(256, 256), *conv(256, 256), pool,
              *conv(256, 512), *conv(512, 512), *conv(512, 512), F.dropout, L.Convolution2D(512, 10, 1),
              lambda x: F.leaky_relu(x, 0.1), lambda x: F.mean(x, axis=(2, 3))]
if layers:
    net = L.Classifier(chainer.Sequential(*layers))
    net.compute_accuracy = False
else:
    net = Yolo()
optimizer = chainer.optimizers.MomentumSGD(lr=0.001, momentum=0.9)
if comm.size > 1:
    optimizer = chainermn.create_multi_node_optimizer(optimizer, comm)
optimizer.setup(net)
(optimizer.actual_optimizer if comm.size > 1 else optimizer).add_hook(chainer.optimizer_hooks.WeightDecay(0.0001))
images = np.random.rand(8, batch, *shape).astype(np.float32)
labels = np.random.randint(10, size=(8, batch)).astype(np.int32)

for step in range(warm + steps):
    if step == warm:
        comm.mpi_comm.Barrier()
        begin = time.perf_counter()
    optimizer.update(net, images[step % 8], labels[step % 8])
comm.mpi_comm.Barrier()
if comm.rank == 0:
    print(comm.size * batch * steps / (time.perf_counter() - begin))
