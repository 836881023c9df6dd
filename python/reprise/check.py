"""Are replayed gradients right? Compared with the run that retains everything, bit for bit, and with central differences in float64.

    report = reprise.check.gradients(step, parameters)      # step(checkpointed: bool) -> loss
    report = reprise.check.differences(loss, parameters)    # loss() -> scalar, in float64

Both restore nothing: `step` and `loss` must start from the same state at every call (load a state_dict first, seed the generators).
"""

import math


class Report:
    """`exact`: bit for bit the same. `worst`: the largest error relative to the largest gradient. `lines`: one per parameter that differs."""

    def __init__(self):
        self.exact, self.worst, self.lines = True, 0.0, []

    def __bool__(self):
        return self.exact

    def __repr__(self):
        return "\n".join(["exact" if self.exact else "largest relative error %.3g" % self.worst, *self.lines])


def _named(parameters):
    if hasattr(parameters, "named_parameters"):
        return list(parameters.named_parameters())
    return [(p if isinstance(p, tuple) else ("parameter %d" % i, p)) for i, p in enumerate(parameters)]


def same_bits(a, b):
    """Equal in every bit (NaN equals itself, 0.0 does not equal -0.0)."""
    import torch

    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    raw = [t.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
    return torch.equal(*raw)


def gradients(step, parameters):
    """Runs `step(False)` (retained) and `step(True)` (checkpointed), each with its backward, and compares loss and gradients."""
    named, results = _named(parameters), []
    for checkpointed in (False, True):
        for _, p in named:
            p.grad = None
        loss = step(checkpointed)
        loss.backward()
        results.append((loss.detach().clone(), [None if p.grad is None else p.grad.detach().clone() for _, p in named]))
    report = Report()
    (loss_a, retained), (loss_b, replayed) = results
    if not same_bits(loss_a, loss_b):
        report.exact = False
        report.worst = math.inf
        report.lines.append("loss: %r retained, %r replayed (the two runs did not start from the same state?)" % (loss_a.item(), loss_b.item()))
    largest = max((float(g.abs().max()) for g in retained if g is not None and g.numel()), default=0.0) or 1.0
    for (name, _), a, b in zip(named, retained, replayed):
        if same_bits(a, b):
            continue
        report.exact = False
        if a is None or b is None:
            report.worst = math.inf
            report.lines.append("%s: gradient missing in the %s run" % (name, "retained" if a is None else "replayed"))
        else:
            error = float((a.double() - b.double()).abs().max()) / largest
            report.worst = max(report.worst, error)
            report.lines.append("%s: off by %.3g of the largest gradient" % (name, error))
    return report


def differences(loss, parameters, samples=16, step=1e-6, tolerance=1e-6, seed=0):
    """Compares gradients of `loss()` with central differences at `samples` random elements of every parameter (float64)."""
    import torch

    named, report = _named(parameters), Report()
    for name, p in named:
        if p.dtype != torch.float64:
            raise ValueError("reprise.check.differences needs float64 parameters; %s is %s" % (name, p.dtype))
        p.grad = None
    loss().backward()
    analytic = [None if p.grad is None else p.grad.detach().clone() for _, p in named]
    largest = max((float(g.abs().max()) for g in analytic if g is not None and g.numel()), default=0.0) or 1.0
    chooser = torch.Generator().manual_seed(seed)
    for (name, p), gradient in zip(named, analytic):
        flat = p.detach().view(-1)
        for i in torch.randperm(flat.numel(), generator=chooser)[:samples].tolist():
            kept = flat[i].item()
            values = []
            for shift in (step, -step):
                flat[i] = kept + shift
                values.append(float(loss().detach()))
            flat[i] = kept
            numeric = (values[0] - values[1]) / (2 * step)
            error = abs(numeric - (0.0 if gradient is None else float(gradient.view(-1)[i]))) / largest
            report.worst = max(report.worst, error)
            if error > tolerance:
                report.lines.append("%s[%d]: %.9g by differences, %.9g by backward" % (name, i, numeric, float(gradient.view(-1)[i]) if gradient is not None else 0.0))
    report.exact = not report.lines
    return report
