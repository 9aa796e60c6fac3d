# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.rocm import ROCmPackage

from spack.package import *

# This recipe comes with the sources: what it builds is the clone that it lies in.
CLONE = pathlib.Path(__file__).resolve().parents[5]


class Ostrakon(CMakePackage, CudaPackage, ROCmPackage):
    """Trains transformer models fully sharded over MPI ranks, in C++ with Kokkos."""

    # The project has no web page of its own, and its maintainers no public accounts that
    # maintainers() could name: the home page is the README of the clone.
    homepage = (CLONE / "README.md").as_uri()
    git = CLONE.as_uri()
    # Where scripts/source-archive leaves the archive of a release; see spack/README.md.
    url = (CLONE / "dist" / "ostrakon-0.1.0.tar.gz").as_uri()

    tags = ["deep-learning", "machine-learning", "mpi", "kokkos"]

    license("Apache-2.0")

    # Below it, a line for each release, which scripts/source-archive prints. An archive holds this
    # file, so that its checksum is known, and added here, only after the release's tag.
    version("main", branch="main")

    variant("onednn", default=True, description="Multiply 16-bit matrices with oneDNN")
    variant("openblas", default=True, description="Multiply matrices of double with OpenBLAS")
    variant("sentencepiece", default=True, description="Read tokenizer.model with SentencePiece")
    variant("parquet", default=False, description="Read Parquet with Arrow")
    variant("nccl", default=True, description="Communicate between GPUs by NCCL or RCCL")
    variant("openmp", default=False, description="Kokkos kernels on OpenMP threads")
    variant("shared", default=False, description="Build a shared library")
    variant("report", default=False, description="What draws plans, studies and runs, in Python")
    variant("tests", default=False, description="Build the tests")

    conflicts("+cuda", when="cuda_arch=none", msg="name the GPU: cuda_arch=90 or another")
    conflicts(
        "+rocm", when="amdgpu_target=none", msg="name the GPU: amdgpu_target=gfx90a or another"
    )
    conflicts("+cuda+rocm", msg="a Kokkos has one kind of device: +cuda or +rocm")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("googletest", type="build", when="+tests")
    depends_on("googletest", type="test")

    depends_on("mpi")
    depends_on("hdf5")
    depends_on("xxhash")
    depends_on("libyaml")
    depends_on("nlohmann-json")
    depends_on("pcre2+jit+unicode")
    depends_on("utf8proc")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("onednn cpu_runtime=omp", when="+onednn")
    depends_on("openblas", when="+openblas")
    depends_on("sentencepiece", when="+sentencepiece")
    depends_on("arrow@15:+parquet+snappy+zstd+zlib+lz4+brotli", when="+parquet")

    with when("+report"):
        depends_on("python@3.9:", type="run")
        depends_on("py-matplotlib@3.5:", type="run")
        depends_on("py-jinja2@3:", type="run")

    # Teuchos comes with Trilinos, which pins the Kokkos that it is built with: one pair for both.
    # Tpetra is the smallest part of it that a Trilinos with Kokkos builds Teuchos for.
    depends_on("kokkos@4.5:")
    depends_on(
        "trilinos@16.1:+mpi+kokkos+tpetra~amesos2~anasazi~belos~fortran~ifpack2~muelu~sacado"
    )
    # Only Trilinos up to 16 knows these variants, so that depends_on() would rule out all others.
    for package in ("amesos", "aztec", "epetra", "epetraext", "ifpack", "ml"):
        conflicts(f"^trilinos@:16+{package}", msg=f"of no use here: ^trilinos~{package}")

    depends_on("kokkos+openmp", when="+openmp")
    depends_on("trilinos+openmp", when="+openmp")

    with when("+nccl"):
        depends_on("rccl", when="+rocm")
        for arch in CudaPackage.cuda_arch_values:
            depends_on(f"nccl+cuda cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")

    with when("+cuda"):
        depends_on("kokkos+wrapper")
        # Kokkos 5 has no such variant: its lambdas always run on devices.
        conflicts("^kokkos@:4~cuda_lambda", msg="kernels are lambdas: ^kokkos+cuda_lambda")
        depends_on("trilinos+cuda+wrapper")
        for arch in CudaPackage.cuda_arch_values:
            depends_on(f"kokkos+cuda cuda_arch={arch}", when=f"cuda_arch={arch}")
            depends_on(f"trilinos+cuda cuda_arch={arch}", when=f"cuda_arch={arch}")

    with when("+rocm"):
        # It has kernels for these and newer ones; elsewhere products are a plain kernel.
        for target in ("gfx90a", "gfx942"):
            depends_on("hipblaslt", when=f"amdgpu_target={target}")
        for target in ROCmPackage.amdgpu_targets:
            depends_on(f"kokkos+rocm amdgpu_target={target}", when=f"amdgpu_target={target}")
            depends_on(f"trilinos+rocm amdgpu_target={target}", when=f"amdgpu_target={target}")

    programs = (
        "train",
        "launch",
        "plan",
        "data",
        "generate",
        "evaluate",
        "checkpoint",
        "bench",
        "scale",
    )

    sanity_check_is_file = [join_path("bin", f"ostrakon-{program}") for program in programs]

    def cmake_args(self):
        args = [
            self.define("Kokkos_ROOT", self["kokkos"].prefix),
            # Spack's compiler wrappers choose the target processor.
            self.define("Ostrakon_ENABLE_NATIVE", False),
            # Spack has no package of the frontend's version that is needed.
            self.define("Ostrakon_ENABLE_CUDNN", False),
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("Ostrakon_ENABLE_ONEDNN", "onednn"),
            self.define_from_variant("Ostrakon_ENABLE_CBLAS", "openblas"),
            self.define_from_variant("Ostrakon_ENABLE_SENTENCEPIECE", "sentencepiece"),
            self.define_from_variant("Ostrakon_ENABLE_PARQUET", "parquet"),
            self.define_from_variant("Ostrakon_ENABLE_NCCL", "nccl"),
            self.define("Ostrakon_ENABLE_TESTS", self.spec.satisfies("+tests") or self.run_tests),
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CXX_COMPILER", self["kokkos"].kokkos_cxx))
        if self.spec.satisfies("+rocm"):
            args.append(self.define("CMAKE_CXX_COMPILER", self.spec["hip"].hipcc))
        return args

    def setup_run_environment(self, env):
        if self.spec.satisfies("+report"):
            env.prepend_path("PYTHONPATH", join_path(self.prefix.share, "ostrakon", "python"))

    # Stand-alone tests: `spack test run ostrakon`.

    def _program(self, name):
        return which(join_path(self.prefix.bin, f"ostrakon-{name}"), required=True)

    def _train(self, ranks, folder, *options):
        """Trains the test's deck into a folder; the loss and digest after each step."""
        bin = self.spec["mpi"].prefix.bin
        mpiexec = which(bin.mpiexec, bin.mpirun)
        if mpiexec is None:
            raise SkipTest(f"no mpiexec in {bin}")
        # Bits depend on the number of threads, and a test must not depend on the number of cores.
        mpiexec.add_default_env("OMP_NUM_THREADS", "1")
        mpiexec.add_default_env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        mpiexec.add_default_env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
        # Spack unsets all variables that end in _ROOT. Who set this one's companion set it too.
        if "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM" in os.environ:
            mpiexec.add_default_env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        deck = join_path(self.test_suite.current_test_data_dir, "synthetic.yaml")
        output = pathlib.Path(folder).resolve()
        mpiexec(
            "-n",
            str(ranks),
            self._program("train").path,
            deck,
            "--set",
            f"output.directory={output}",
            *options,
        )
        rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        return [(row["step"], row["loss"], row["state_digest"]) for row in rows]

    def test_version(self):
        """every program says its version"""
        for name in self.programs:
            with test_part(self, f"test_version_{name}", purpose=f"ostrakon-{name} --version"):
                said = self._program(name)("--version", output=str.split, error=str.split)
                check_outputs(rf"^ostrakon-{name} \d+\.\d+\.\d+", said)

    def test_train(self):
        """train: the loss falls, and one and two ranks and a resumed run give the same bits"""
        one = None
        with test_part(self, "test_train_one_rank", purpose="8 steps on one rank"):
            one = self._train(1, "one")
            assert [step for step, _, _ in one] == list(range(1, 9)), f"steps are missing: {one}"
            assert one[-1][1] < one[0][1] - 0.5, f"the loss does not fall: {one}"

        if one is None:
            return  # a failed part is reported and does not end the test

        with test_part(self, "test_train_checkpoints", purpose="its checkpoints are whole"):
            said = self._program("checkpoint")(
                "verify", join_path("one", "checkpoints"), output=str.split, error=str.split
            )
            check_outputs("2 good, 0 damaged", said)

        # A machine that tests may have one GPU.
        ranks = 1 if self.spec.satisfies("+cuda") or self.spec.satisfies("+rocm") else 2
        with test_part(self, "test_train_ranks", purpose=f"the same on {ranks} ranks"):
            assert self._train(ranks, "two") == one, "ranks change the result"

        with test_part(self, "test_train_resume", purpose=f"steps 5 to 8 on {ranks} ranks"):
            checkpoint = pathlib.Path("one", "checkpoints", "step-00000004").resolve()
            resumed = self._train(ranks, "resumed", "--resume", str(checkpoint))
            assert resumed[-4:] == one[-4:], "a resumed run gives another result"
