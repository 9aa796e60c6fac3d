// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/simulate/machine.hpp>
#include <string>

namespace ostrakon::config {

/// Reads the text of a machine file (machines/*.yaml): YAML with the root key `ostrakon`, see
/// docs/machine-files.md. Unknown keys, impossible values and missing keys throw Error, which
/// begins with `name` and gives the key, its value and what was expected.
simulate::Machine read_machine(const std::string& text, const std::string& name);

/// Returns the processor that ranks compute on in `machine`.
Processor processor_of(const simulate::Machine& machine);

/// Throws Error for a deck whose times a machine file does not tell: with products in 8 bits, where
/// it has no rate of these.
void require_rates(const Settings& settings, const simulate::Machine& machine);

/// Throws Error for a machine file with the steps of other software. `why`: what Ostrakon's own are
/// needed for.
void require_own_steps(const simulate::Machine& machine, const std::string& why);

/// Writes a file that reads back to the same machine but for its stack, which it does not have,
/// with the meaning of each number. `source`: the origin of the numbers, a line of comment.
/// `remarks`: further comments, by section and key ("bits16.product_teraflops").
std::string write_machine(const simulate::Machine& machine, const std::string& source,
                          const std::map<std::string, std::string>& remarks = {});

}  // namespace ostrakon::config
