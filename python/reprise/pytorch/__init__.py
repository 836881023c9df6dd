"""The PyTorch adapter: torch.utils.checkpoint, and the checkpoint functions of Megatron and DeepSpeed, under the replay rule.

See docs/torch-adapter.md for the rule and the parts. Imported only after torch.utils.checkpoint."""


def install(module):
    """Instruments an imported module (torch.utils.checkpoint or one of the others); True when it is instrumented."""
    from reprise.pytorch import others, patch

    if not patch.install():
        return False
    if module.__name__ == "torch.utils.checkpoint":
        return True
    return others.install(patch.active(), module)


def uninstall():
    """Takes every patch out again."""
    from reprise.pytorch import patch

    patch.uninstall()
