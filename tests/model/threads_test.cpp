// SPDX-License-Identifier: Apache-2.0
// On how many threads kernels run changes no bit. Matrix products are the library's, whose bits may
// depend on its threads, and run on one here.
#include <gtest/gtest.h>

#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/host_threads.hpp>
#include <vector>

#include "model/model_run.hpp"

namespace ostrakon::test {
namespace {

/// An instance of Exec with one thread; of as many as all have where this Kokkos has no other.
Exec one_thread() {
#if defined(KOKKOS_ENABLE_OPENMP) && KOKKOS_VERSION >= 40000
  // Instances share the threads, one each.
  const std::vector<int> weights(static_cast<std::size_t>(host_threads()), 1);
  return Kokkos::Experimental::partition_space(Exec(), weights).front();
#else
  return Exec();
#endif
}

/// Both families at sizes of which every thread gets something.
std::vector<ModelCase> larger_cases() {
  std::vector<ModelCase> cases = model_cases();
  cases.resize(2);
  for (ModelCase& which : cases) {
    which.settings.width = 48;
    which.settings.vocabulary = 531;
    which.settings.ffn_width = 137;
    which.leaf = {3, 37};
  }
  return cases;
}

template <class T>
void expect_the_bits_of_one_thread() {
  for (const ModelCase& which : larger_cases()) {
    SCOPED_TRACE(which.name);
    ModelRun<T> run(which), alone(which);
    alone.exec = one_thread();
    if (alone.exec.concurrency() != 1 || run.exec.concurrency() == 1)
      GTEST_SKIP() << "takes a Kokkos with more than one thread, and instances with one";
    for (ModelRun<T>* one : {&run, &alone}) {
      one->forward();
      one->backward(compute_t<T>(0.25));
    }
    EXPECT_EQ(bits(run.losses()), bits(alone.losses()));
    EXPECT_EQ(bits(run.gradient.values()), bits(alone.gradient.values()));
    for (int u = 0; u < run.units(); ++u) {
      EXPECT_EQ(bits(run.outputs[u].values()), bits(alone.outputs[u].values())) << "unit " << u;
      EXPECT_EQ(bits(run.saved[u].values()), bits(alone.saved[u].values())) << "unit " << u;
      EXPECT_EQ(bits(run.gradients[u].values()), bits(alone.gradients[u].values())) << "unit " << u;
    }
  }
}

class KernelThreads : public ::testing::Test {
 protected:
  void SetUp() override { math::set_gemm_threads(1); }
  void TearDown() override { math::set_gemm_threads(host_threads()); }
};

TEST_F(KernelThreads, ChangeNoBitInFloat) { expect_the_bits_of_one_thread<float>(); }
TEST_F(KernelThreads, ChangeNoBitInDouble) { expect_the_bits_of_one_thread<double>(); }
TEST_F(KernelThreads, ChangeNoBitInBf16) { expect_the_bits_of_one_thread<bf16>(); }

}  // namespace
}  // namespace ostrakon::test
