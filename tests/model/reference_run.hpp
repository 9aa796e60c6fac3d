// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/model_run.hpp"
#include "model/reference_decoder.hpp"

namespace ostrakon::test {

/// The decoder in plain loops, with the parameters and tokens of `run`.
template <class T>
reference::Result<double> run_reference(const ModelRun<T>& run) {
  const auto parameters = [&](const std::string& owner, const std::string& name) {
    std::vector<double> values;
    run.for_each_parameter([&](int u, const model::Parameter& p) {
      if (p.owner != owner || p.name != name) return;
      const std::vector<T> own = part(run.parameters[u].values(), p);
      values.assign(own.begin(), own.end());
    });
    EXPECT_FALSE(values.empty()) << "no parameter " << name << " in " << owner;
    return values;
  };
  const auto tokens = static_cast<int>(run.decoder.leaf().tokens);
  std::vector<int> positions;
  for (std::int64_t r = 0; r < run.rows(); ++r)
    positions.push_back(static_cast<int>(run.decoder.leaf().sequence().position(0, r % tokens)));
  return reference::Decoder<double>(run.decoder.settings(), tokens, positions, parameters)
      .run(run.token_ids, run.target_ids);
}

}  // namespace ostrakon::test
