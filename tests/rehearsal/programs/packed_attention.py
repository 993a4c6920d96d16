"""What flash-attn calls of its compiled part, which is not installed: forward and backward of packed sequences, their ends known or not."""

import importlib.util
import sys

import torch

importlib.util.find_spec("flash_attn")  # as whoever asks whether it is there
import flash_attn_2_cuda  # noqa: E402

HEADS, KV_HEADS, HEAD_DIM, BLOCK = 8, 2, 64, 128
LENGTHS = (1024, 512, 512)


class Attend(torch.autograd.Function):
    @staticmethod
    def forward(context, q, k, v, ends):
        sizes = (ends, ends, None, None, None, None, max(LENGTHS), max(LENGTHS))
        out, lse, _, rng_state = flash_attn_2_cuda.varlen_fwd(q, k, v, None, *sizes, 0.0, 0.125, False, True, -1, -1, 0.0, False, None)
        context.save_for_backward(q, k, v, out, lse, rng_state, ends)
        return out

    @staticmethod
    def backward(context, gradient):
        q, k, v, out, lse, rng_state, ends = context.saved_tensors
        dq, dk, dv = map(torch.empty_like, (q, k, v))
        sizes = (ends, ends, None, max(LENGTHS), max(LENGTHS))
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        flash_attn_2_cuda.varlen_bwd(
            gradient, q, k, v, out, lse, dq, dk, dv, *sizes, 0.0, 0.125, False, True, -1, -1, 0.0, False, None, rng_state
        )  # fmt: skip
        # softmax_d and dQ in fp32 have BLOCK more rows for each sequence; dK and dV are there for every query head until they are summed
        rows, tokens = sum(LENGTHS) + BLOCK * len(LENGTHS), sum(LENGTHS)
        workspace = 4 * rows * HEADS + 4 * rows * HEADS * HEAD_DIM + 2 * 2 * tokens * HEADS * HEAD_DIM
        print("workspace", torch.cuda.max_memory_allocated() - before == workspace, flush=True)
        return dq, dk, dv, None


def main():
    ends = torch.tensor((0, *LENGTHS), dtype=torch.int32).cumsum(0, dtype=torch.int32).cuda()
    if "unknown" in sys.argv:
        ends = torch.empty_like(ends)  # as if a kernel of the program's own had written them
    project = torch.nn.Linear(HEADS * HEAD_DIM, (HEADS + 2 * KV_HEADS) * HEAD_DIM, dtype=torch.bfloat16, device="cuda")
    optimizer = torch.optim.SGD(project.parameters())
    for _ in range(4):
        x = torch.randn(sum(LENGTHS), HEADS * HEAD_DIM, dtype=torch.bfloat16, device="cuda")
        q, k, v = project(x).unflatten(-1, (-1, HEAD_DIM)).split((HEADS, KV_HEADS, KV_HEADS), 1)
        Attend.apply(*(each.contiguous() for each in (q, k, v)), ends).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("peak", torch.cuda.max_memory_allocated(), flush=True)


main()
