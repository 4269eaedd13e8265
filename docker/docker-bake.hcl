// docker buildx bake --file docker/docker-bake.hcl TARGET, in the top folder of the checkout.
// A variable is set by the environment: MAX_JOBS=8 docker buildx bake ...

variable "BASE_IMAGE" {
  default = "nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04@sha256:622e78a1d02c0f90ed900e3985d6c975d8e2dc9ee5e61643aed587dcf9129f42"
}

variable "RUNTIME_IMAGE" {
  default = BASE_IMAGE
}

variable "PYTORCH_URL" {
  default = "https://github.com/pytorch/pytorch.git"
}

// The release and the folder below patches/ that belongs to it.
variable "PYTORCH_TAG" {
  default = "v2.6.0"
}

variable "SERIES" {
  default = "v2.6.0"
}

// For relink: the stock wheel that the library is for.
variable "WHEEL" {
  default = "2.6.0"
}

variable "TORCH_CUDA_ARCH_LIST" {
  default = "8.0;8.6;8.9;9.0"
}

// Empty: from cores and memory, 4 GiB a job.
variable "MAX_JOBS" {
  default = ""
}

// git rev-parse HEAD
variable "REVISION" {
  default = "unknown"
}

variable "TAG" {
  default = "local"
}

variable "IMAGE" {
  default = "aten-overrides"
}

group "default" {
  targets = ["relink"]
}

group "all" {
  targets = ["full", "test", "relink", "test-relinked"]
}

target "_common" {
  context    = "."
  dockerfile = "docker/Dockerfile"
  platforms  = ["linux/amd64"]
  args = {
    BASE_IMAGE           = BASE_IMAGE
    RUNTIME_IMAGE        = RUNTIME_IMAGE
    PYTORCH_URL          = PYTORCH_URL
    PYTORCH_TAG          = PYTORCH_TAG
    SERIES               = SERIES
    WHEEL                = WHEEL
    TORCH_CUDA_ARCH_LIST = TORCH_CUDA_ARCH_LIST
    MAX_JOBS             = MAX_JOBS
    REVISION             = REVISION
  }
}

// Minutes: stops after cmake's configure step.
target "configure" {
  inherits = ["_common"]
  target   = "configure"
  output   = ["type=cacheonly"]
}

// Hours: the wheel in docker/out/wheel.
target "wheel" {
  inherits = ["_common"]
  target   = "wheel-out"
  output   = ["type=local,dest=docker/out/wheel"]
}

// Hours: an image with that wheel.
target "full" {
  inherits = ["_common"]
  target   = "full"
  tags     = ["${IMAGE}:${TAG}"]
}

// As full, with the tests; needs a GPU to run.
target "test" {
  inherits = ["_common"]
  target   = "test"
  tags     = ["${IMAGE}-test:${TAG}"]
}

// Minutes: the linalg library for a stock wheel, in docker/out/relink.
target "relink" {
  inherits = ["_common"]
  target   = "relink-out"
  output   = ["type=local,dest=docker/out/relink"]
}

// The stock wheel with that library, and the tests; needs a GPU to run.
target "test-relinked" {
  inherits = ["_common"]
  target   = "test-relinked"
  tags     = ["${IMAGE}-test-relinked:${TAG}"]
}
