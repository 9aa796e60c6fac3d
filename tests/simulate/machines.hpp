// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/simulate/machine.hpp>
#include <string>

namespace ostrakon::tests {

/// The text of a machine file with no more than has to be there.
inline const std::string smallest_machine_file = R"(
ostrakon:
  machine:
    name: "small"
  fp32:
    product_teraflops: 0.5
  kernels:
    row_gigabytes_per_second: 20
  host:
    gigabytes_per_second: 10
    upload_gigabytes_per_second: 8
    download_gigabytes_per_second: 6
)";

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
