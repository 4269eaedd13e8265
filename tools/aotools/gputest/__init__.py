"""tools/gpu-test: measurements and checks on a machine with an NVIDIA GPU."""
