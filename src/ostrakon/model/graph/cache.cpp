// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/passes.hpp>

namespace ostrakon::model::graph {

void cache(Graph& graph) {
  std::set<int> values, groups;
  for (const Operation& operation : graph.operations)
    for (std::size_t i = 0; i < operation.over_parts.size(); ++i) {
      if (operation.over_parts[i] != OverParts::whole) continue;
      const int v = operation.forward.front().reads[i];
      const int group = graph.values[static_cast<std::size_t>(v)].group;
      values.insert(v);
      if (group >= 0) groups.insert(group);
    }
  for (int v = 0; v < static_cast<int>(graph.values.size()); ++v) {
    Value& value = graph.values[static_cast<std::size_t>(v)];
    if (values.count(v) == 0 && groups.count(value.group) == 0) continue;
    value.rows = graph.setting.decoded_tokens;
    value.is_cached = true;
  }
}

}  // namespace ostrakon::model::graph
