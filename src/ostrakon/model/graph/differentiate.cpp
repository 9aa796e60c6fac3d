// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/model/graph/division.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/passes.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::model::graph {
namespace {

/// Lists the calls of backward.
class Differentiation {
 public:
  explicit Differentiation(Listing& listing) : l_(listing) {}

  void run() {
    const bool is_loss = l_.graph.setting.is_loss;
    for (int output : is_loss ? std::vector<int>() : l_.graph.outputs) {
      newest_[output] = gradient_like(output);
      lies_in_gradient(newest_[output], static_cast<int>(l_.output_gradients.size()));
      l_.output_gradients.push_back(newest_[output]);
    }
    const std::vector<Operation>& operations = l_.graph.operations;
    for (auto operation = operations.rbegin(); operation != operations.rend(); ++operation) {
      const int made = operation->forward.front().writes.front();
      for (int input : operation->residuals) add_to_gradient(input, newest_.at(made));
      for (const Call& call : operation->backward) add_call(call);
    }
    for (int i = 0; i < static_cast<int>(l_.graph.inputs.size()); ++i) {
      int gradient = newest_.at(at(l_.graph.inputs, i));
      // What an exchange brings lies in a buffer of its own.
      const bool is_exchanged = any_of(l_.backward, [&](const Call& call) {
        return call.exchange && contains(call.writes, gradient);
      });
      const bool is_there = is_loss || found_or(numbers_, gradient, -1) == i;
      if (is_exchanged || !is_there) gradient = moved_to_gradient(gradient);
      lies_in_gradient(gradient, i);
      l_.input_gradients.push_back(gradient);
    }
  }

 private:
  /// The gradient of columns of an array is columns of one array, too.
  int gradient_like(int v) {
    const int made = l_.graph.add_like(v, groups_, "d ");
    Value& gradient = l_.value(made);
    const Value& value = l_.value(v);
    gradient.keep = Keep::never;
    gradient.columns *= found_or(l_.graph.summed_weights, v, 1);
    const bool is_number = gradient.element == Element::number;
    if (is_number && value.part_distribution == Distribution::replicated) {
      gradient.part_distribution = Distribution::partial;
      if (l_.graph.setting.context_ranks > 1) gradient.element = Element::sum;
    }
    if (l_.graph.setting.pieces > 1) {
      if (value.tensor_distribution == Distribution::replicated)
        gradient.tensor_distribution = Distribution::partial;
      if (value.tensor_distribution == Distribution::partial)
        gradient.tensor_distribution = Distribution::replicated;
      if (is_number && gradient.tensor_distribution == Distribution::partial)
        gradient.element = Element::sum;
      // The sum of a product over ranks becomes a number where it is rounded.
      if (value.tensor_distribution != Distribution::replicated && value.element == Element::sum)
        gradient.element = Element::number;
    }
    return made;
  }

  /// What lies elsewhere is copied to where gradients of outputs were, last of all.
  int moved_to_gradient(int gradient) {
    const int moved = l_.graph.add_like(gradient);
    l_.backward.push_back(l_.graph.copy("move", {gradient}, {moved}));
    return moved;
  }

  /// The value lies where the gradient of an output, or of an input, with this number does.
  void lies_in_gradient(int v, int number) {
    l_.gradient_aliases.insert(v);
    numbers_[v] = number;
  }
  void note_sum(int sum, int old) {
    if (l_.gradient_aliases.count(old) > 0) lies_in_gradient(sum, numbers_.at(old));
  }

  void add_to_gradient(int v, int more) {
    const auto found = newest_.find(v);
    if (found == newest_.end()) {
      newest_[v] = more;
      return;
    }
    if (l_.value(v).group >= 0)
      throw std::logic_error("gradients of columns are not added up: " + l_.value(v).name);
    if (l_.value(found->second).tensor_distribution == Distribution::partial &&
        l_.graph.setting.pieces > 1)
      throw std::logic_error("sums over pieces are not added up, each has to be complete: d " +
                             l_.value(v).name);
    const int sum = gradient_like(v), old = std::exchange(found->second, sum);
    Call add{"add to d " + l_.value(v).name, {more, old}, {sum}};
    add.replaces = {{sum, old}};
    add.kernel = l_.graph.kernels.add_up;
    add.is_by_piece = is_by_piece(l_.graph, add);
    l_.backward.push_back(add);
    note_sum(sum, old);
  }
  void add_call(Call call) {
    std::vector<int> gradients;
    bool trains = false;
    for (int w : call.gradients) {
      const bool trained = is_gradient(w) ? l_.graph.summed_weights.count(primal_of(w)) > 0
                                          : w != Call::none && l_.graph.weight(w).trained;
      gradients.push_back(trained ? w : Call::none);
      trains = trains || trained;
    }
    const auto exists = [&](int id) {
      return is_gradient(id) ? newest_.count(primal_of(id)) > 0 : absent_.count(id) == 0;
    };
    const bool is_complete = std::all_of(call.reads.begin(), call.reads.end(), exists);
    if ((call.writes.empty() && !trains) || !is_complete) {
      if (!is_complete && any_of(call.reads, [&](int id) { return is_gradient(id) && exists(id); }))
        throw std::logic_error(call.name + " has gradients of some of its outputs only");
      absent_.insert(call.writes.begin(), call.writes.end());
      return;
    }
    const auto newest = [&](int& id) {
      if (is_gradient(id)) id = newest_.at(primal_of(id));
    };
    for (int& id : call.reads) newest(id);
    for (auto& [to, from] : call.replaces) newest(from);
    call.gradients = gradients;
    for (int w : call.gradients)
      if (is_gradient(w)) call.writes.push_back(w);
    std::vector<std::pair<int, int>> written;  // values, twice if they are read twice
    for (int& id : call.writes) {
      if (!is_gradient(id)) continue;
      const int v = primal_of(id);
      id = gradient_like(v);
      written.emplace_back(v, id);
      for (int& gradient : call.gradients)
        if (gradient == gradient_of(v)) gradient = in_place_of_weight(id);
      const auto old = newest_.find(v);
      if (!call.can_add || old == newest_.end() ||
          l_.value(id).tensor_distribution == Distribution::partial)
        continue;
      call.adds = true;
      call.reads.push_back(old->second);
      call.replaces.emplace_back(id, old->second);
      note_sum(id, old->second);
      newest_.erase(old);
    }
    for (auto& [to, from] : call.replaces)
      if (is_gradient(to))
        to = std::find_if(written.begin(), written.end(), [v = primal_of(to)](const auto& one) {
               return one.first == v;
             })->second;
    l_.backward.push_back(std::move(call));
    for (auto [v, id] : written) add_to_gradient(v, id);
  }

  Listing& l_;
  std::map<int, int> newest_;   // gradient of each value
  std::map<int, int> groups_;   // of gradients, by that of values
  std::set<int> absent_;        // what no call writes
  std::map<int, int> numbers_;  // of what lies in gradients of outputs, those of these
};

}  // namespace

Listing differentiate(Graph graph) {
  Listing listing{std::move(graph)};
  for (const Operation& operation : listing.graph.operations)
    append(listing.forward, operation.forward);
  if (!listing.graph.setting.decodes) Differentiation(listing).run();
  for (int v = 0; v < static_cast<int>(listing.graph.values.size()); ++v)
    if (listing.value(v).is_cached) listing.kept.insert(v);
  return listing;
}

std::map<int, Listing::Maker> Listing::makers() const {
  std::map<int, Maker> makers;
  for (const Operation& operation : graph.operations)
    for (const Call& call : operation.forward)
      for (int v : call.writes) makers[v] = {&operation, &call};
  return makers;
}

}  // namespace ostrakon::model::graph
