#!/usr/bin/env python3
"""Makes the files of this folder: what trainings of a few steps end with, by PyTorch in double precision.

    tests/golden/golden.py          (Debian: python3-torch)

Nothing here is made from Darknet's or our source: gradients are autograd's, momentum and decay are torch.optim.SGD, Adam is
torch.optim.Adam, clipping is clip_grad_norm_, LARS is algorithm 1 of You, Gitman, Ginsburg, 2017. Rules of Darknet that are not
the textbook's are written down where they stand below. tests/cli/golden.bats trains CASE.cfg from its start, and compares with CASE.weights.

Each step trains on all images, so their order is of no account.
"""
import os
import struct

import torch

torch.set_default_dtype(torch.float64)
HERE = os.path.dirname(os.path.abspath(__file__))
IMAGES, SIDE, CLASSES, STEPS = 12, 8, 4, 12
# All else is as Darknet has it by itself: no colour changes, and nothing turns.
NET = dict(batch=IMAGES, height=SIDE, width=SIDE, channels=1, max_crop=SIDE, flip=0, threads=1, momentum=0, decay=0,
           learning_rate=.2, max_batches=STEPS, cmn_batch='global')
LAYERS = {
    'mlp': ['connected output=10 activation=logistic', f'connected output={CLASSES} activation=linear', 'softmax'],
    'conv': ['convolutional filters=4 size=3 stride=1 pad=1 activation=tanh', 'maxpool size=2 stride=2',
             'convolutional filters=6 size=3 stride=2 pad=1 activation=logistic',
             f'connected output={CLASSES} activation=linear', 'softmax'],
    'norm': ['convolutional batch_normalize=1 filters=4 size=3 stride=1 pad=1 activation=tanh', 'maxpool size=2 stride=2',
             'convolutional batch_normalize=1 filters=6 size=3 stride=2 pad=1 activation=logistic',
             f'connected output={CLASSES} activation=linear', 'softmax'],
}
# Case: layers, and what [net] has besides NET. The first of each kind of layers is the one that the others differ from.
CASES = {
    'mlp': ('mlp', {}),
    'mlp-momentum': ('mlp', dict(momentum=.9)),
    'mlp-decay': ('mlp', dict(momentum=.9, decay=.02)),
    'mlp-passes': ('mlp', dict(momentum=.9, decay=.02, subdivisions=3)),
    'mlp-burn-in': ('mlp', dict(momentum=.9, burn_in=8, power=2)),
    'mlp-steps': ('mlp', dict(momentum=.9, policy='steps', steps='4,8', scales='.5,.2')),
    'mlp-poly': ('mlp', dict(momentum=.9, policy='poly', power=2)),
    'mlp-adam': ('mlp', dict(adam=1, B1=.9, B2=.99, eps=1e-3, learning_rate=.02)),
    'mlp-adam-decay': ('mlp', dict(adam=1, B1=.8, B2=.99, eps=1e-3, learning_rate=.02, decay=.05)),
    'mlp-lars': ('mlp', dict(momentum=.9, decay=.02, cmn_lars=.3)),
    'mlp-clip': ('mlp', dict(momentum=.9, decay=.02, cmn_clip=.05)),
    'mlp-adam-clip': ('mlp', dict(adam=1, B1=.9, B2=.99, eps=1e-3, learning_rate=.02, cmn_clip=.05)),
    'mlp-delayed': ('mlp', dict(momentum=.5, decay=.02, cmn_double_buffering=1)),
    'mlp-adam-delayed': ('mlp', dict(adam=1, B1=.9, B2=.99, eps=1e-3, learning_rate=.02, cmn_double_buffering=1)),
    'conv': ('conv', {}),
    'conv-decay': ('conv', dict(momentum=.9, decay=.02)),
    'conv-adam': ('conv', dict(adam=1, B1=.9, B2=.99, eps=1e-3, learning_rate=.02)),
    'conv-lars': ('conv', dict(momentum=.9, decay=.02, cmn_lars=.3)),
    'norm': ('norm', {}),
    'norm-decay': ('norm', dict(momentum=.9, decay=.02)),
    'norm-adam': ('norm', dict(adam=1, B1=.9, B2=.99, eps=1e-3, learning_rate=.02)),
    'norm-clip': ('norm', dict(momentum=.9, decay=.02, cmn_clip=.1)),
    'norm-lars': ('norm', dict(momentum=.9, decay=.02, cmn_lars=.1)),
}


def images():
    """Grey points from 33 to 126, some more of the class's own; the label is in the name."""
    x = torch.zeros(IMAGES, 1, SIDE, SIDE)
    for i in range(IMAGES):
        for y in range(SIDE):
            for c in range(SIDE):
                own = (c if i % CLASSES < 2 else y) * (9 if i % 2 else -9)
                x[i, 0, y, c] = 33 + (41 * i + 17 * y + 29 * c + 7 * y * c + own + 900) % 94
    return x


def rounded(x):
    return torch.as_tensor(x, dtype=torch.float32).to(torch.float64)


class Norm(torch.nn.Module):
    """Darknet's: the variance is of n - 1 values in forward, of n in backward, and its two epsilons differ
    (tests/layers.md). The value is forward's, the slope that of `smooth`."""

    def forward(self, x, layer):
        over = (0, 2, 3)
        n = x.numel() / x.shape[1]
        mean = x.mean(over, keepdim=True)
        biased = ((x - mean) ** 2).mean(over, keepdim=True)
        variance = biased - biased.detach() + (biased * n / (n - 1)).detach()
        with torch.no_grad():
            layer['mean'].mul_(.99).add_(mean.flatten(), alpha=.01)
            layer['variance'].mul_(.99).add_(variance.flatten(), alpha=.01)
            value = (x - mean) / (variance.sqrt() + 1e-6)
        smooth = (x - mean) / (variance + 1e-5).sqrt()
        normed = smooth - smooth.detach() + value
        return layer['scales'].view(1, -1, 1, 1) * normed


class Net:
    def __init__(self, layers, seed):
        draw = torch.Generator().manual_seed(seed)
        self.layers, c, h = [], 1, SIDE
        for text in LAYERS[layers]:
            kind, *keys = text.split()
            keys = dict(k.split('=') for k in keys)
            layer = dict(kind=kind, keys=keys)
            if kind in ('connected', 'convolutional'):
                if kind == 'connected':
                    out, shape = int(keys['output']), (int(keys['output']), c * h * h)
                else:
                    out = int(keys['filters'])
                    shape = (out, c, int(keys['size']), int(keys['size']))
                fan = 1
                for s in shape[1:]:
                    fan *= s
                layer['biases'] = rounded(torch.randn(out, generator=draw) * .1).requires_grad_()
                if 'batch_normalize' in keys:
                    layer['scales'] = rounded(1 + torch.randn(out, generator=draw) * .1).requires_grad_()
                    layer['mean'] = rounded(torch.randn(out, generator=draw) * .1)
                    layer['variance'] = rounded(.5 + torch.rand(out, generator=draw))
                layer['weights'] = rounded(torch.randn(shape, generator=draw) * (2 / fan) ** .5).requires_grad_()
                c = out
                h = {'connected': 1}.get(kind, (h + 2 - 3) // int(keys.get('stride', 1)) + 1)
            elif kind == 'maxpool':
                h //= 2
            self.layers.append(layer)

    def parameters(self, *names):
        return [l[n] for l in self.layers for n in names if n in l]

    def loss(self, x, classes):
        for l in self.layers:
            if l['kind'] == 'connected':
                x = x.flatten(1) @ l['weights'].T + l['biases']
            elif l['kind'] == 'convolutional':
                x = torch.nn.functional.conv2d(x, l['weights'], stride=int(l['keys']['stride']), padding=1)
                if 'scales' in l:
                    x = Norm()(x, l)
                x = x + l['biases'].view(1, -1, 1, 1)
            elif l['kind'] == 'maxpool':
                x = torch.nn.functional.max_pool2d(x, 2)
            elif l['kind'] == 'softmax':
                return torch.nn.functional.cross_entropy(x, classes)
            x = {'linear': lambda v: v, 'tanh': torch.tanh, 'logistic': torch.sigmoid}[
                l['keys'].get('activation', 'linear')](x)

    def write(self, name, seen):
        with open(os.path.join(HERE, name), 'wb') as file:
            file.write(struct.pack('<iiiQ', 0, 2, 0, seen))
            for l in self.layers:
                first = ['biases', 'scales', 'mean', 'variance', 'weights']
                order = first if l['kind'] == 'convolutional' else ['biases', 'weights']
                for part in order:
                    if part in l:
                        file.write(l[part].detach().to(torch.float32).numpy().astype('<f4').tobytes())


class Lars:
    """v = momentum v + rate l (g + decay w), w = w - v, with l = trust |w| / (|g| + decay |w|), for weights. All else has
    momentum alone, as in Darknet."""

    def __init__(self, weights, others, momentum, decay, trust):
        self.weights, self.momentum, self.decay, self.trust = weights, momentum, decay, trust
        self.v = [torch.zeros_like(w) for w in weights]
        self.others = torch.optim.SGD(others, lr=1, momentum=momentum)

    def step(self, rate):
        self.others.param_groups[0]['lr'] = rate
        self.others.step()
        with torch.no_grad():
            for w, v in zip(self.weights, self.v):
                l = self.trust * w.norm() / (w.grad.norm() + self.decay * w.norm())
                v.mul_(self.momentum).add_(rate * l * (w.grad + self.decay * w))
                w.sub_(v)


class Torch:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self, rate):
        for group in self.optimizer.param_groups:
            group['lr'] = rate
        self.optimizer.step()


def optimizer_of(net, keys):
    weights, others = net.parameters('weights'), net.parameters('biases', 'scales')
    if keys.get('adam'):
        # Darknet gives Adam the sum over the batch, not its mean, so its eps counts for the sum; and decay is of all
        # parameters, not of weights alone.
        return Torch(torch.optim.Adam(weights + others, betas=(keys['B1'], keys['B2']), eps=keys['eps'] / IMAGES,
                                      weight_decay=keys['decay']))
    if keys.get('cmn_lars'):
        return Lars(weights, others, keys['momentum'], keys['decay'], keys['cmn_lars'])
    return Torch(torch.optim.SGD([dict(params=weights, weight_decay=keys['decay']), dict(params=others)], lr=1,
                                 momentum=keys['momentum']))


def rate_of(keys, step):
    """Steps count from 1, so no step of a burn_in has the rate 0."""
    rate = keys['learning_rate']
    if step < keys.get('burn_in', 0):
        return rate * (step / keys['burn_in']) ** keys['power']
    if keys.get('policy') == 'steps':
        for at, scale in zip(keys['steps'].split(','), keys['scales'].split(',')):
            rate *= float(scale) if step >= int(at) else 1
    if keys.get('policy') == 'poly':
        rate *= (1 - step / keys['max_batches']) ** keys['power']
    return rate


def train(name, layers, own):
    keys = dict(NET, **own)
    net, x = Net(layers, sorted(LAYERS).index(layers)), images() / 255
    if name == layers:
        net.write(f'start-{layers}.weights', IMAGES * STEPS)
    classes, optimizer, delayed = torch.arange(IMAGES) % CLASSES, optimizer_of(net, keys), None
    parameters = net.parameters('weights', 'biases', 'scales')
    for step in range(1, STEPS + 1):
        for p in parameters:
            p.grad = None
        net.loss(x, classes).backward()
        if keys.get('cmn_clip'):
            torch.nn.utils.clip_grad_norm_(parameters, keys['cmn_clip'])
        if keys.get('cmn_double_buffering'):  # each step has the gradient of the one before; the first has none
            now = [p.grad.clone() for p in parameters]
            for p, g in zip(parameters, delayed or []):
                p.grad = g
            if delayed:
                optimizer.step(rate_of(keys, step))
            delayed = now
        else:
            optimizer.step(rate_of(keys, step))
    net.write(f'{name}.weights', IMAGES * STEPS)
    with open(os.path.join(HERE, f'{name}.cfg'), 'w') as file:
        print('[net]', *(f'{k}={v}' for k, v in keys.items()), sep='\n', file=file)
        for text in LAYERS[layers]:
            kind, *lines = text.split()
            print(f'[{kind}]', *lines, sep='\n', file=file)


for i, image in enumerate(images()):
    with open(os.path.join(HERE, f'{i:02d}-class-{i % CLASSES}.pgm'), 'wb') as file:
        file.write(b'P5 %d %d 255\n' % (SIDE, SIDE) + bytes(int(v) for v in image.flatten()))
for name, (layers, own) in CASES.items():
    train(name, layers, own)
