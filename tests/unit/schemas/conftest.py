from hypothesis import settings

# A busy machine is slow, not wrong; a failure prints how to repeat it.
settings.register_profile("farpost", deadline=None, print_blob=True)
settings.load_profile("farpost")
