// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/graph.hpp>

#include <map>

namespace ostrakon::model::graph {

int Graph::add_like(int v, const std::string& before) {
  Value like = value(v);
  like.name = before + like.name;
  like.group = -1;
  like.first_column = 0;
  return add(std::move(like));
}

int Graph::add_like(int v, std::map<int, int>& groups, const std::string& before) {
  const int made = add_like(v, before), group = value(v).group;
  if (group < 0) return made;
  if (groups.count(group) == 0) groups[group] = add_group(columns_of_group(group));
  value(made).group = groups[group];
  value(made).first_column = value(v).first_column;
  return made;
}

std::vector<int> Graph::add_like(const std::vector<int>& all, const std::string& before) {
  std::map<int, std::map<std::int64_t, int>> groups;  // values, by group and first column
  std::map<int, int> made;
  for (int v : all) {
    const Value& one = value(v);
    if (one.group >= 0) groups[one.group][one.first_column] = v;
  }
  for (int v : all) made[v] = add_like(v, before);
  for (const auto& [group, members] : groups) {
    if (members.size() == 1) continue;
    const int own = add_group(0);
    std::int64_t& columns = group_columns[static_cast<std::size_t>(own)];
    for (const auto& [first, v] : members) {
      Value& one = value(made[v]);
      one.group = own;
      one.first_column = columns;
      columns += one.columns;
    }
  }
  std::vector<int> in_order;
  for (int v : all) in_order.push_back(made[v]);
  return in_order;
}

}  // namespace ostrakon::model::graph
