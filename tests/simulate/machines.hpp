// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/simulate/machine.hpp>

namespace ostrakon::tests {

/// A machine of round numbers: 100 flops and 10 bytes of memory a second, and so on.
inline simulate::Machine round_machine() {
  simulate::Machine machine;
  machine.name = "round";
  machine.fp32.products = 100.0;
  machine.fp32.peak = 200.0;
  machine.fp32.attention = 50.0;
  machine.kernels.row_bytes_per_second = 10.0;
  machine.inside_nodes.bytes_per_second = 8.0;
  machine.across_nodes.bytes_per_second = 2.0;
  machine.host_bytes_per_second = 5.0;
  machine.upload_bytes_per_second = 4.0;
  machine.download_bytes_per_second = 2.0;
  return machine;
}

}  // namespace ostrakon::tests
