# SPDX-License-Identifier: Apache-2.0
import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.rocm import ROCmPackage

from spack.package import *

# This recipe travels with the sources: what it builds is the clone that it lies in.
CLONE = pathlib.Path(__file__).resolve().parents[5]


class Ostrakon(CMakePackage, CudaPackage, ROCmPackage):
    """Trains transformer models fully sharded over MPI ranks, in C++ with Kokkos."""

    git = CLONE.as_uri()

    license("Apache-2.0")

    version("main", branch="main")

    variant("onednn", default=True, description="Multiply matrices with oneDNN on the host")
    variant("openblas", default=True, description="Multiply matrices with OpenBLAS on the host")
    variant("openmp", default=False, description="Kokkos kernels on OpenMP threads")
    variant("shared", default=False, description="Build a shared library")
    variant("tests", default=False, description="Build the tests")

    conflicts("+cuda", when="cuda_arch=none", msg="name the GPU: cuda_arch=90 or another")
    conflicts("+rocm", when="amdgpu_target=none", msg="name the GPU: amdgpu_target=gfx90a or another")
    conflicts("+cuda+rocm")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("googletest", type="build", when="+tests")

    depends_on("mpi")
    depends_on("hdf5")
    depends_on("xxhash")
    depends_on("nlohmann-json")
    depends_on("onednn cpu_runtime=omp", when="+onednn")
    depends_on("openblas", when="+openblas")

    # Teuchos comes with Trilinos, which pins the Kokkos that it is built with: one pair for both.
    # Tpetra is the smallest part of it that a Trilinos with Kokkos builds Teuchos for.
    depends_on("kokkos@4.5:")
    depends_on(
        "trilinos@16.1:+mpi+kokkos+tpetra~amesos~amesos2~anasazi~aztec~belos~epetra~epetraext"
        "~fortran~ifpack~ifpack2~ml~muelu~sacado"
    )

    depends_on("kokkos+openmp", when="+openmp")
    depends_on("trilinos+openmp", when="+openmp")

    with when("+cuda"):
        depends_on("kokkos+cuda_lambda+wrapper")
        depends_on("trilinos+cuda+wrapper")
        for arch in CudaPackage.cuda_arch_values:
            depends_on(f"kokkos+cuda cuda_arch={arch}", when=f"cuda_arch={arch}")
            depends_on(f"trilinos+cuda cuda_arch={arch}", when=f"cuda_arch={arch}")

    with when("+rocm"):
        for target in ROCmPackage.amdgpu_targets:
            depends_on(f"kokkos+rocm amdgpu_target={target}", when=f"amdgpu_target={target}")
            depends_on(f"trilinos+rocm amdgpu_target={target}", when=f"amdgpu_target={target}")

    def cmake_args(self):
        args = [
            self.define("Kokkos_ROOT", self["kokkos"].prefix),
            # Spack's compiler wrappers choose the target processor.
            self.define("Ostrakon_ENABLE_NATIVE", False),
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("Ostrakon_ENABLE_ONEDNN", "onednn"),
            self.define_from_variant("Ostrakon_ENABLE_CBLAS", "openblas"),
            self.define_from_variant("Ostrakon_ENABLE_TESTS", "tests"),
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CXX_COMPILER", self["kokkos"].kokkos_cxx))
        if self.spec.satisfies("+rocm"):
            args.append(self.define("CMAKE_CXX_COMPILER", self.spec["hip"].hipcc))
        return args
