// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/simulate/machine.hpp>
#include <string>

namespace ostrakon::config {

/// Reads the text of a machine file (machines/*.yaml), YAML with the root key `ostrakon`: what
/// docs/simulation.md lists. Unknown keys, impossible values and what is missing throw Error, which
/// begins with `name` and says the key, its value and what was expected.
simulate::Machine read_machine(const std::string& text, const std::string& name);

/// What ranks compute on there.
Processor processor_of(const simulate::Machine& machine);

/// A file that reads back to the same machine, each number with what it means. `source`: where the
/// numbers are from, a line of comment. `remarks`: what else there is to say of some of them, by
/// section and key ("bits16.product_teraflops").
std::string write_machine(const simulate::Machine& machine, const std::string& source,
                          const std::map<std::string, std::string>& remarks = {});

}  // namespace ostrakon::config
