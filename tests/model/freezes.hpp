// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <ostrakon/model/unit.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <string>
#include <vector>

namespace ostrakon::test {

/// Which parameters are frozen, with a name for messages.
struct Freeze {
  std::string name;
  model::Frozen frozen;
};

/// Those that match any pattern, or those that match none.
inline Freeze freezing(const std::vector<std::string>& patterns, bool all_others = false) {
  std::string name = all_others ? "training only" : "freezing";
  for (const std::string& pattern : patterns) name += " " + pattern;
  return {name, [=](const std::string& parameter) {
            return all_others !=
                   std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
                     return plan::matches(pattern, parameter);
                   });
          }};
}
inline Freeze training_only(const std::vector<std::string>& patterns) {
  return freezing(patterns, true);
}

/// Nothing, whole units, kinds of parameters, either table of the embedding, parts of mixtures of
/// experts, and mixtures within blocks and stacks of them.
inline std::vector<Freeze> freezes() {
  return {freezing({}),
          freezing({"block.1.*"}),
          freezing({"head.*"}),
          freezing({"embedding.*"}),
          freezing({"embedding.token.weight"}),
          freezing({"embedding.position.weight"}),
          freezing({"embedding.*", "block.0.*"}),
          freezing({"*norm*"}),
          freezing({"*norm.weight"}),
          freezing({"*.bias"}),
          freezing({"*norm.bias", "*.mlp.down.*"}),
          freezing({"*.attention.qkv.weight", "*up.weight", "head.output.weight"}),
          freezing({"*.attention.out.weight", "*down.weight", "*up.bias"}),
          freezing({"block.0.mlp.*", "block.1.attention.*", "block.2.*.weight"}),
          freezing({"*mlp.router*", "*mlp.shared*"}),
          freezing({"*mlp.experts*"}),
          freezing({"*mlp.experts*", "*mlp.router.weight", "*mlp.shared*"}),
          training_only({"*.bias"}),
          training_only({"*norm*"}),
          training_only({"block.1.attention.out.*"}),
          training_only({"embedding.*"}),
          training_only({"head.norm.*"})};
}

}  // namespace ostrakon::test
