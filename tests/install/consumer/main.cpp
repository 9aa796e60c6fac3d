// SPDX-License-Identifier: Apache-2.0
// A user's program: multiplies two matrices with the installed library.

#include <Kokkos_Core.hpp>
#include <ostrakon/model.hpp>

int main(int argc, char** argv) {
  Kokkos::ScopeGuard kokkos(argc, argv);
  using ostrakon::Transpose;
  Kokkos::View<float*, ostrakon::Memory> a("a", 4), b("b", 4), c("c", 4);
  Kokkos::deep_copy(a, 2.0f);
  Kokkos::deep_copy(b, 3.0f);
  const ostrakon::Exec exec;
  ostrakon::gemm<float>(exec, Transpose::no, Transpose::no, 1.0f, {a.data(), 2, 2},
                        {b.data(), 2, 2}, 0.0f, {c.data(), 2, 2});
  exec.fence();
  const auto result = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), c);
  return result(0) == 12.0f ? 0 : 1;
}
