// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/graph.hpp>

#include <map>

namespace ostrakon::model::graph {

int Graph::add_like(int v, const std::string& before) {
  Value value = values[static_cast<std::size_t>(v)];
  value.name = before + value.name;
  value.group = -1;
  value.first_column = 0;
  return add(std::move(value));
}

std::vector<int> Graph::add_like(const std::vector<int>& all, const std::string& before) {
  std::map<int, std::map<std::int64_t, int>> groups;  // values, by group and first column
  std::map<int, int> made;
  for (int v : all) {
    const Value& value = values[static_cast<std::size_t>(v)];
    if (value.group >= 0) groups[value.group][value.first_column] = v;
  }
  for (int v : all) made[v] = add_like(v, before);
  for (const auto& [group, members] : groups) {
    if (members.size() == 1) continue;
    const int own = add_group(0);
    std::int64_t& columns = group_columns[static_cast<std::size_t>(own)];
    for (const auto& [first, v] : members) {
      Value& value = values[static_cast<std::size_t>(made[v])];
      value.group = own;
      value.first_column = columns;
      columns += value.columns;
    }
  }
  std::vector<int> in_order;
  for (int v : all) in_order.push_back(made[v]);
  return in_order;
}

}  // namespace ostrakon::model::graph
