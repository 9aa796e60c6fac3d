// SPDX-License-Identifier: Apache-2.0
// A user's program: multiplies two matrices with the installed library.

#include <Kokkos_Core.hpp>
#include <cstdio>
#include <ostrakon/base/version.hpp>
#include <ostrakon/math/products/gemm.hpp>

int main(int argc, char** argv) {
  Kokkos::ScopeGuard kokkos(argc, argv);
  using ostrakon::math::Transpose;
  Kokkos::View<float*, ostrakon::Memory> a("a", 4), b("b", 4), c("c", 4);
  Kokkos::deep_copy(a, 2.0f);
  Kokkos::deep_copy(b, 3.0f);
  const ostrakon::Exec exec;
  ostrakon::math::gemm<float>(exec, Transpose::no, Transpose::no, 1.0f, {a.data(), 2, 2},
                              {b.data(), 2, 2}, 0.0f, {c.data(), 2, 2});
  exec.fence();
  const auto result = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), c);
  std::printf("Ostrakon %s with %s: %g\n", ostrakon::version(), ostrakon::math::gemm_kernel(),
              static_cast<double>(result(0)));
  return result(0) == 12.0f ? 0 : 1;
}
