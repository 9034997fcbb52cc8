from hypothesis import settings

# Compiling for the first example takes seconds, so examples have no deadline.
settings.register_profile("bcol", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("bcol")
