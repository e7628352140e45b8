"""LayerNorm on a GPU. The maths and the contract are in ops/layernorm.py."""

from .kernels import row_threads, run, scratch_array
from .memory import zero
from .ranges import parts

ROWS = 64  # positions of a chunk of the backward pass; same as layernorm.wgsl
COLUMNS = 64  # channels of a workgroup of the backward pass's sums; same as there


def layernorm_forward(out, mean, rstd, inp, weight, bias):
    C = inp.shape[-1]
    scalars = (C, bias is not None, False)
    for part in parts(mean.size, out, mean, rstd, inp):
        arrays = dict(enumerate((*part, weight, bias)))
        run("layernorm", "layernorm_forward", arrays, part[1].size, scalars, WG=row_threads(C))


def residual_layernorm_forward(residual, out, mean, rstd, inp1, inp2, weight, bias):
    stem, entry = "residual_layernorm", "residual_layernorm_forward"
    C = inp1.shape[-1]
    scalars = (C, bias is not None)
    for part in parts(mean.size, residual, out, mean, rstd, inp1, inp2):
        arrays = dict(enumerate((*part, weight, bias)))
        run(stem, entry, arrays, part[2].size, scalars, WG=row_threads(C))


def layernorm_backward(dinp, dweight, dbias, dout, inp, weight, mean, rstd, *, accumulate):
    C = inp.shape[-1]
    if mean.size == 0 and not accumulate:
        zero(dweight)
        if dbias is not None:
            zero(dbias)
    for part in parts(mean.size, dinp, dout, inp, mean, rstd):
        part_dinp, part_dout, part_inp, part_mean, part_rstd = part
        count = part_mean.size
        scalars = (C, dbias is not None, accumulate)
        arrays = {3: part_dout, 4: part_inp, 6: part_mean, 7: part_rstd}
        whole = {0: part_dinp, 5: weight, **arrays}
        run("layernorm", "layernorm_backward", whole, count, scalars, WG=row_threads(C))
        chunks, blocks = -(-count // ROWS), -(-C // COLUMNS)
        sums = (scratch_array(mean.device, "layernorm sums", 2 * chunks * C),)
        entry = "layernorm_backward_sums"
        run("layernorm", entry, arrays, chunks * blocks, scalars, sums)
        entry = "layernorm_backward_weights"
        run("layernorm", entry, {1: dweight, 2: dbias}, blocks, scalars, sums)
        accumulate = True
