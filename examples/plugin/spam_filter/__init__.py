"""A spam filter that people train on their own messages: the example of ``docs/plugins.md``.

Begin with ``settings``, then ``network`` and ``task``. Every file is what its name says; those of
settings (``settings``, ``rule``, ``method``) import no torch.
"""
