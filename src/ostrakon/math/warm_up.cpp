// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/warm_up.hpp>

#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {

void warm_up([[maybe_unused]] const Exec& exec) {
#if OSTRAKON_ON_DEVICE
  constexpr int bytes = 256;
  TeamPolicy policy(exec, 1, Kokkos::AUTO);
  policy.set_scratch_size(1, Kokkos::PerTeam(bytes));
  Kokkos::parallel_for(
      "warm_up", policy, KOKKOS_LAMBDA(const TeamMember& team) { team.team_barrier(); });
  exec.fence();
#elif defined(OSTRAKON_FAKE_DEVICE)
  exec.take_team_scratch();
#endif
}

}  // namespace ostrakon::math
