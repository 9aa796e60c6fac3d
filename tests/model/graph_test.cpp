// SPDX-License-Identifier: Apache-2.0
// Graphs of operations without kernels: what each pass guarantees, and that places are checked.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/base/text.hpp>
#include <ostrakon/model/block_parameters.hpp>
#include <ostrakon/model/graph/division.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/graph/place_check.hpp>
#include <random>
#include <stdexcept>

namespace ostrakon::test {
namespace {

using namespace model::graph;
using Values = std::vector<int>;
using Names = std::vector<std::string>;

constexpr std::int64_t rows = 4, width = 8;

/// A graph that is built call by call. Names of calls are those of what they make.
struct Sketch {
  Graph g;
  Division division;
  std::set<std::string> frozen;

  explicit Sketch(const Setting& setting = {}) {
    g.setting = setting;
    g.input = value("x");
  }
  int value(const std::string& name, Keep keep = Keep::always, std::int64_t columns = width) {
    Value v{name, rows, columns};
    v.keep = keep;
    return g.add(v);
  }
  int weight(const std::string& name, std::int64_t elements) {
    const std::int64_t offset =
        g.weights.empty() ? 0 : g.weights.back().offset + g.weights.back().elements;
    g.weights.push_back({name, offset, elements, frozen.count(name) == 0});
    return static_cast<int>(g.weights.size()) - 1;
  }
  /// x W, or onto + x W.
  int linear(int x, const std::string& name, Keep keep = Keep::always, int onto = -1) {
    const int y = value(name, keep);
    product(x, name, {y}, onto);
    return y;
  }
  /// Queries, keys and values, which are columns of one array.
  Values qkv(int x, const std::string& name, Keep keep = Keep::always) {
    const int group = g.add_group(3 * width);
    Values made;
    for (const char* which : {".q", ".k", ".v"}) {
      made.push_back(value(name + which, keep));
      g.values.back().group = group;
      g.values.back().first_column = width * static_cast<std::int64_t>(made.size() - 1);
    }
    product(x, name, made, -1);
    return made;
  }
  void product(int x, const std::string& name, const Values& made, int onto) {
    const int w = weight(name, 16);
    Call forward{name, {x}, made, {w}};
    forward.flops = 100;
    Values dy;
    for (int y : made) dy.push_back(~y);
    Call gradient{"d " + name + ".weight", dy, {}};
    gradient.reads.push_back(x);
    gradient.gradients = {w};
    Call input{"d " + name, dy, {~x}, {w}};
    input.can_add = true;
    gradient.flops = input.flops = 100;
    gradient.scratch = {40};
    Operation operation{{forward}, {gradient, input}};
    if (onto >= 0) {
      operation.forward.front().reads.push_back(onto);
      operation.residuals = {onto};
    }
    g.operations.push_back(operation);
  }
  int norm(int x, const std::string& name, Keep statistics = Keep::norms) {
    const int y = value(name, Keep::cheap), s = value(name + ".statistics", statistics, 1);
    const int w = weight(name, width);
    Call gradient{"d " + name + ".weight", {x, ~y, s}, {}};
    gradient.gradients = {w};
    gradient.scratch = {24};
    Call input{"d " + name, {x, ~y, s}, {~x}, {w}};
    input.can_add = true;
    g.operations.push_back({{{name, {x}, {y, s}, {w}}}, {gradient, input}});
    g.operations.back().recompute = Call{name + " of statistics", {x, s}, {y}, {w}};
    return y;
  }
  int activation(int x, const std::string& name) {
    const int y = value(name, Keep::cheap);
    Call backward{"d " + name, {x, ~y}, {~x}};
    backward.replaces = {{~x, x}};
    g.operations.push_back({{{name, {x}, {y}}}, {backward}});
    return y;
  }
  /// Takes all inputs but the first whole over parts.
  int attention(Values inputs, const std::string& name, Keep keep = Keep::attention) {
    const Values whole = division.whole_over_parts(g, {inputs.begin() + 1, inputs.end()});
    std::copy(whole.begin(), whole.end(), inputs.begin() + 1);
    const int y = value(name, keep);
    Call forward{name, inputs, {y}};
    forward.flops = 100;
    forward.scratch = {100};
    Call backward{"d " + name, inputs, {}};
    append(backward.reads, {y, ~y});
    for (int v : inputs) backward.writes.push_back(~v);
    backward.flops = 250;
    backward.repeated_flops = 50;
    g.operations.push_back({{forward}, {backward}});
    return y;
  }
  int add_attention(int x, const std::string& name) {
    const Values all = qkv(norm(x, name + ".norm"), name + ".qkv");
    return linear(attention(all, name), name + ".out", Keep::always, x);
  }
  int add_mlp(int x, const std::string& name) {
    const int up = linear(norm(x, name + ".norm"), name + ".up", Keep::mlp);
    return linear(activation(up, name + ".act"), name + ".down", Keep::always, x);
  }
  Graph block() {
    const int y = add_mlp(add_attention(g.input, "a"), "m");
    return with_output(y);
  }
  Graph with_output(int y) {
    g.outputs = {y};
    return g;
  }
};

Setting setting(bool drops, bool defers = false, std::int64_t parts = 1) {
  Setting s;
  s.drops_norms = s.drops_attention = s.drops_mlp = drops;
  s.defers = defers;
  s.parts = parts;
  return s;
}

Listing list(Graph graph) {
  Listing listing = differentiate(std::move(graph));
  keep(listing);
  if (listing.graph.setting.defers) defer(listing);
  return listing;
}
Listing in_order(Graph graph) {
  Listing listing = list(std::move(graph));
  order(listing);
  return listing;
}
Names names(const Calls& calls) {
  Names all;
  for (const Call& call : calls) all.push_back(call.name);
  return all;
}
std::size_t at(const Calls& calls, const std::string& name) {
  const Names all = names(calls);
  if (std::count(all.begin(), all.end(), name) != 1) throw std::runtime_error("not one: " + name);
  return static_cast<std::size_t>(std::find(all.begin(), all.end(), name) - all.begin());
}
int id(const Graph& graph, const std::string& name) {
  for (std::size_t v = 0; v < graph.values.size(); ++v)
    if (graph.values[v].name == name) return static_cast<int>(v);
  ADD_FAILURE() << "no value " << name;
  return 0;
}
Names kept(const Listing& listing) {
  Names all;
  for (int v : listing.kept) all.push_back(listing.value(v).name);
  std::sort(all.begin(), all.end());
  return all;
}
bool starts(const std::string& name, const char* with) { return name.rfind(with, 0) == 0; }

// ---- differentiate ------------------------------------------------------------------------------

TEST(Differentiate, ListsBackwardFromTheLastOperationToTheFirst) {
  const Listing listing = differentiate(Sketch().block());
  EXPECT_EQ(names(listing.forward),
            (Names{"a.norm", "a.qkv", "a", "a.out", "m.norm", "m.up", "m.act", "m.down"}));
  EXPECT_EQ(names(listing.backward),
            (Names{"d m.down.weight", "d m.down", "d m.act", "d m.up.weight", "d m.up",
                   "d m.norm.weight", "d m.norm", "d a.out.weight", "d a.out", "d a",
                   "d a.qkv.weight", "d a.qkv", "d a.norm.weight", "d a.norm"}));
  // Both norms add to the residual's gradient, where it lies.
  for (const char* name : {"d m.norm", "d a.norm"}) {
    const Call& call = listing.backward[at(listing.backward, name)];
    EXPECT_TRUE(call.adds);
    EXPECT_EQ(call.replaces.size(), 1u);
    EXPECT_EQ(call.replaces.front(), (std::pair{call.writes.front(), call.reads.back()}));
    EXPECT_EQ(listing.in_gradient.count(call.writes.front()), 1u);
  }
  EXPECT_EQ(listing.in_gradient.size(), 3u);
}

/// n is read by two products, which can add, and by an activation, which can't.
TEST(Differentiate, AddsUpGradientsOfWhatIsReadSeveralTimes) {
  Sketch s;
  const int n = s.norm(s.g.input, "n"), a = s.linear(n, "a"), b = s.linear(n, "b");
  const int y = s.linear(a, "y", Keep::always, s.linear(b, "z", Keep::always, s.g.input));
  const int c = s.linear(s.activation(n, "c"), "w", Keep::always, y);
  const Listing listing = differentiate(s.with_output(c));
  const Calls& calls = listing.backward;
  EXPECT_FALSE(calls[at(calls, "d c")].adds);
  EXPECT_TRUE(calls[at(calls, "d b")].adds);
  EXPECT_TRUE(calls[at(calls, "d a")].adds);
  EXPECT_EQ(calls[at(calls, "d a")].reads.back(), calls[at(calls, "d b")].writes.front());

  Sketch t;  // the activation comes last in backward
  const int m = t.norm(t.g.input, "m"), d = t.activation(m, "d"), e = t.linear(m, "e");
  const int p = t.linear(d, "p", Keep::always, t.g.input);
  const Listing other = differentiate(t.with_output(t.linear(e, "q", Keep::always, p)));
  const std::size_t sum = at(other.backward, "add to d m");
  EXPECT_EQ(sum, at(other.backward, "d d") + 1);
  const Call& add = other.backward[sum];
  EXPECT_EQ(add.reads, (Values{other.backward[sum - 1].writes[0],
                               other.backward[at(other.backward, "d e")].writes[0]}));
  EXPECT_EQ(add.replaces, (std::vector{std::pair{add.writes[0], add.reads[1]}}));
  EXPECT_EQ(other.backward[at(other.backward, "d m")].reads[1], add.writes[0]);
}

TEST(Differentiate, ComputesNothingForFrozenWeights) {
  Sketch s;
  s.frozen = {"a.norm", "m.up", "m.down"};
  const Listing listing = differentiate(s.block());
  for (const char* name : {"d a.norm.weight", "d m.up.weight", "d m.down.weight"})
    EXPECT_FALSE(contains(names(listing.backward), name)) << name;
  for (const Call& call : listing.backward)
    for (int w : call.gradients)
      EXPECT_TRUE(listing.graph.weights[static_cast<std::size_t>(w)].trained);
  // What only a frozen weight's gradient needs is not made again or saved either.
  EXPECT_FALSE(contains(kept(list(s.g)), "m.act"));
  EXPECT_FALSE(contains(names(list(s.g).backward), "m.act"));
}

/// Arguments of calls are found by their index.
TEST(Differentiate, ListsNoCallWithSomeOfItsArguments) {
  Sketch s;
  s.frozen = {"unused"};
  const int n = s.norm(s.g.input, "n");
  s.norm(s.g.input, "unused");
  const int y = s.linear(n, "y", Keep::always, s.g.input);
  EXPECT_EQ(names(differentiate(s.with_output(y)).backward),
            (Names{"d y.weight", "d y", "d n.weight", "d n"}));
  Sketch t;
  const Values qkv = t.qkv(t.g.input, "qkv");
  const int z = t.linear(qkv[0], "z", Keep::always, t.g.input);
  EXPECT_THROW(differentiate(t.with_output(z)), std::logic_error);
}

/// Where nothing is added to the gradient of the output, which becomes that of the input.
TEST(Differentiate, CopiesAnInputGradientThatLiesElsewhere) {
  Sketch s;
  const Graph graph = s.with_output(s.linear(s.g.input, "y"));
  EXPECT_EQ(names(differentiate(graph).backward), (Names{"d y.weight", "d y", "move"}));
  const Program program = derive(graph);
  const PlacedCall& last = program.backward.back().back();
  EXPECT_EQ(last.reads.front().home, Home::workspace);
  EXPECT_EQ(last.writes.front().home, Home::gradient);
}

// ---- division -----------------------------------------------------------------------------------

TEST(Division, GathersInOneMessageAndSumsGradients) {
  const Graph graph = Sketch(setting(false, false, 2)).block();
  const Listing listing = differentiate(graph);
  const Call& gather = listing.forward[at(listing.forward, "gather a.qkv.k, a.qkv.v")];
  ASSERT_TRUE(gather.exchange);
  EXPECT_EQ(gather.exchange->kind, plan::ExchangeKind::gather);
  EXPECT_EQ(gather.exchange->elements, 2 * 2 * rows * width);
  EXPECT_EQ(gather.exchange->span.ranks, 2);
  // They stay columns of one array, without the queries.
  const Value &k = listing.value(gather.writes[0]), &v = listing.value(gather.writes[1]);
  EXPECT_EQ(k.group, v.group);
  EXPECT_EQ(k.first_column + width, v.first_column);
  EXPECT_EQ(listing.graph.group_columns[static_cast<std::size_t>(k.group)], 2 * width);
  const Call& attention = listing.forward[at(listing.forward, "a")];
  EXPECT_EQ(attention.reads, (Values{id(graph, "a.qkv.q"), gather.writes[0], gather.writes[1]}));

  const Call& backward = listing.backward[at(listing.backward, "d a")];
  const Call& sum = listing.backward[at(listing.backward, "sum d a.qkv.k, a.qkv.v")];
  const Call& round = listing.backward[at(listing.backward, "round d a.qkv.k, a.qkv.v")];
  EXPECT_EQ(sum.exchange->kind, plan::ExchangeKind::reduce_scatter);
  EXPECT_EQ(sum.reads, (Values{backward.writes[1], backward.writes[2]}));
  EXPECT_EQ(round.reads, sum.writes);
  const Call& weight = listing.backward[at(listing.backward, "d a.qkv.weight")];
  EXPECT_EQ(weight.reads,
            (Values{backward.writes[0], round.writes[0], round.writes[1], id(graph, "a.norm")}));
  for (const Calls* calls : {&listing.forward, &listing.backward})
    for (const Call& call : *calls)
      for (int r : call.reads)
        EXPECT_EQ(listing.value(r).rows,
                  listing.value(r).over_parts == Over::rows ? rows : 2 * rows)
            << listing.value(r).name;
}

/// Keys that are values, too: each gradient of theirs counts.
TEST(Division, TakesAValueWholeTwiceAndByRowsToo) {
  for (const std::int64_t parts : {1, 2}) {
    Sketch s(setting(false, false, parts));
    const int n = s.norm(s.g.input, "n"), q = s.linear(n, "q"), kv = s.linear(n, "kv");
    const int a = s.attention({q, kv, kv}, "a");
    const Listing listing = in_order(s.with_output(s.linear(a, "y", Keep::always, s.g.input)));
    const std::string whole = parts > 1 ? "all kv" : "kv";
    const Call& sum = listing.backward[at(listing.backward, "add to d " + whole)];
    const Call& backward = listing.backward[at(listing.backward, "d a")];
    EXPECT_EQ(sum.reads, (Values{backward.writes[2], backward.writes[1]}));
    derive(s.g);
  }
  Sketch s(setting(false, false, 2));
  const int q = s.linear(s.g.input, "q");
  const int y = s.linear(s.attention({q, q}, "a"), "y", Keep::always, s.g.input);
  derive(s.with_output(y));
}

/// An operation on columns hands its leaves over, one on rows their sum.
TEST(Division, SumsGradientsOfWholeWeightsLeafByLeaf) {
  Setting setting;
  setting.pieces = 4;
  setting.tensor_ranks = 2;
  Sketch s(setting);
  constexpr std::int64_t leaves[] = {5, 1};
  int x = s.g.input;
  for (const std::int64_t n : leaves) {
    const int w = s.division.whole_weight(s.g, s.weight(text("w", n), 3), true, n);
    const int y = s.value(text("y", n));
    Call gradient{text("d w", n), {x, ~y}, {}};
    gradient.gradients = {w};
    s.g.operations.push_back({{{text("y", n), {x}, {y}, {w}}}, {gradient}, {x}});
    x = y;
  }
  s.division.gather_weights(s.g);
  Listing listing = differentiate(s.with_output(x));
  const Call& join = listing.backward[at(listing.backward, "join d weights")];
  const Call& sum = listing.backward[at(listing.backward, "sum d weights")];
  const Call& give = listing.backward[at(listing.backward, "give d weights")];
  ASSERT_EQ(join.reads.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(listing.value(join.reads[i]).rows, 1);
    EXPECT_EQ(listing.value(join.reads[i]).columns, leaves[i] * 12);
    EXPECT_EQ(listing.value(join.reads[i]).over_tensor, Over::sum);
  }
  EXPECT_EQ(sum.exchange->elements, (5 + 1) * 12);
  EXPECT_EQ(join.leaves, (std::vector<std::int64_t>{5, 1}));
  EXPECT_EQ(give.leaves, join.leaves);
  // Two sums of leaves wait at most, of what the rank has of the weight.
  EXPECT_EQ(give.scratch, (std::vector<std::int64_t>{2 * 6 * 4}));
}

TEST(Division, CachesRowsOfAllTokensOfWhatIsTakenWhole) {
  Setting s;
  s.decoded_tokens = 32;
  const Listing listing = in_order(Sketch(s).block());
  for (const Value& value : listing.graph.values) {
    const bool is_cached = starts(value.name, "a.qkv.");  // the queries are columns of that array
    EXPECT_EQ(value.is_cached, is_cached) << value.name;
    EXPECT_EQ(value.rows, is_cached ? 32 : rows) << value.name;
  }
  EXPECT_EQ(kept(listing), (Names{"a.qkv.k", "a.qkv.q", "a.qkv.v"}));
  EXPECT_TRUE(listing.backward.empty());
}

// ---- keep ---------------------------------------------------------------------------------------

TEST(Keep, SavesWhatIsNotDropped) {
  const Listing listing = list(Sketch(setting(false)).block());
  EXPECT_EQ(kept(listing), (Names{"a", "a.norm.statistics", "a.out", "a.qkv.k", "a.qkv.q",
                                  "a.qkv.v", "m.norm.statistics", "m.up"}));
  // Made again once each, of statistics.
  EXPECT_EQ(at(listing.backward, "m.norm of statistics") + 1,
            at(listing.backward, "d m.up.weight"));
  EXPECT_EQ(at(listing.backward, "a.norm of statistics") + 1,
            at(listing.backward, "d a.qkv.weight"));
  EXPECT_EQ(at(listing.backward, "m.act") + 1, at(listing.backward, "d m.down.weight"));
  EXPECT_EQ(listing.backward.size(), 14u + 3u);
}

TEST(Keep, DropsByEachSetting) {
  const auto kept_with = [](bool norms, bool attention, bool mlp) {
    Setting s;
    s.drops_norms = norms, s.drops_attention = attention, s.drops_mlp = mlp;
    const Listing listing = list(Sketch(s).block());
    for (const Call& call : listing.backward)
      if (call.is_recomputed) {
        EXPECT_EQ(starts(call.name, "m.norm of") || starts(call.name, "a.norm of"),
                  !norms && call.name.find("norm") != std::string::npos);
        EXPECT_TRUE(call.replaces.empty());
      }
    return kept(listing);
  };
  const Names qkv = {"a.out", "a.qkv.k", "a.qkv.q", "a.qkv.v"};
  const auto with = [&](Names more) {
    more.insert(more.end(), qkv.begin(), qkv.end());
    std::sort(more.begin(), more.end());
    return more;
  };
  EXPECT_EQ(kept_with(true, false, false), with({"a", "m.up"}));
  EXPECT_EQ(kept_with(false, true, false),
            with({"a.norm.statistics", "m.norm.statistics", "m.up"}));
  EXPECT_EQ(kept_with(false, false, true), with({"a", "a.norm.statistics", "m.norm.statistics"}));
  EXPECT_EQ(kept_with(true, true, true), qkv);
}

TEST(Keep, ExchangesAgain) {
  const Listing listing = list(Sketch(setting(false, false, 2)).block());
  const Call& again = listing.backward[at(listing.backward, "gather a.qkv.k, a.qkv.v")];
  EXPECT_TRUE(again.is_recomputed && again.exchange);
  const Call& backward = listing.backward[at(listing.backward, "d a")];
  EXPECT_EQ(backward.reads[1], again.writes[0]);
  EXPECT_EQ(backward.reads[2], again.writes[1]);
  EXPECT_EQ(kept(listing).size(), 8u);
}

// ---- defer --------------------------------------------------------------------------------------

void expect_deferred_calls_alone(const Listing& listing) {
  std::set<int> exchanged, own;
  for (const Calls* calls : {&listing.forward, &listing.backward})
    for (const Call& call : *calls)
      if (call.exchange) exchanged.insert(call.writes.begin(), call.writes.end());
  for (const Call& call : listing.deferred) {
    for (int w : call.weights) EXPECT_LT(w, 0) << call.name;
    for (int v : call.reads) {
      EXPECT_EQ(exchanged.count(v), 0u) << call.name << " reads " << listing.value(v).name;
      EXPECT_EQ(listing.in_gradient.count(v), 0u)
          << call.name << " reads " << listing.value(v).name;
    }
  }
}

TEST(Defer, MovesGradientsOfWeightsWithWhatOnlyTheyRead) {
  for (const bool drops : {false, true})
    for (const std::int64_t parts : {1, 2}) {
      const Listing listing = list(Sketch(setting(drops, true, parts)).block());
      expect_deferred_calls_alone(listing);
      for (const char* w : {"d m.down.weight", "d m.up.weight", "d a.out.weight", "d a.qkv.weight"})
        EXPECT_LT(at(listing.deferred, w), listing.deferred.size());
      // Gradients of norms, which are sums over memory, are small: they wait to be given.
      for (const char* w : {"m.norm", "a.norm"}) {
        const Call& made =
            listing.backward[at(listing.backward, std::string("d ") + w + ".weight")];
        const Call& given = listing.deferred[at(listing.deferred, std::string("give d ") + w)];
        EXPECT_EQ(made.writes, given.reads);
        EXPECT_EQ(made.gradients, (Values{~given.reads[0]}));
        EXPECT_EQ(listing.value(given.reads[0]).element, Element::sum);
      }
      for (const Call& call : listing.backward)
        for (int w : call.gradients) EXPECT_LT(w, 0) << call.name;
    }
}

/// The first gradient is the unit's: backward adds to it.
TEST(Defer, CopiesGradientsThatBackwardChangesAndWeights) {
  const Listing listing = list(Sketch(setting(false, true)).block());
  const Call& copy = listing.backward.front();
  EXPECT_EQ(copy.reads, listing.output_gradients);
  EXPECT_EQ(listing.deferred[at(listing.deferred, "d m.down.weight")].reads[0], copy.writes[0]);
  const std::size_t norm = at(listing.deferred, "m.norm of statistics");
  const Call& weights = listing.backward[at(listing.backward, "copy m.norm")];
  EXPECT_EQ(listing.deferred[norm].weights, (Values{~weights.writes[0]}));
}

TEST(Defer, DefersNothingWithoutProductsOfTrainedWeights) {
  Sketch s(setting(false, true));
  s.frozen = {"a.qkv", "a.out", "m.up", "m.down"};
  const Listing listing = list(s.block());
  EXPECT_TRUE(listing.deferred.empty());
  EXPECT_EQ(listing.backward[at(listing.backward, "d m.norm.weight")].gradients.size(), 1u);
}

/// y = x + MLP(norm(x)) in pieces, of one of two tensor ranks.
Graph mlp_over_tensor_ranks(bool defers) {
  model::DecoderSettings m;
  m.width = 8;
  m.ffn_width = 16;
  m.activation = model::Activation::gelu;
  model::LeafShape leaf{1, 4};
  leaf.tensor_ranks = 2;
  leaf.defers_gradients = defers;
  std::vector<model::Parameter> parameters;
  for (const model::Parameter& one : model::block_parameters(m))
    if (starts(one.name, "mlp.")) parameters.push_back(one);
  model::lay_out_parameters(parameters, "block.0", {}, leaf.tensor_pieces());
  Operations<float> block(leaf, {}, parameters, m.width);
  const int x = block.input(), n = block.norm(x, "mlp.norm", m.norm, m.norm_epsilon);
  const int up = block.linear(n, "mlp.up", m.ffn_width, Keep::mlp, true);
  const int activated = block.activation(up, "mlp.activated", m.activation);
  return std::move(block).take({block.linear_onto(x, activated, "mlp.down", "y")});
}

Names exchanges(const Calls& calls) {
  Names all;
  for (const Call& call : calls)
    if (call.exchange) all.push_back(call.name);
  return all;
}

/// Nothing is exchanged twice, and backward exchanges nothing that only deferred calls read.
TEST(Defer, LeavesWhatBackwardHasExchanged) {
  const Listing at_once = in_order(mlp_over_tensor_ranks(false));
  const Listing listing = in_order(mlp_over_tensor_ranks(true));
  EXPECT_EQ(exchanges(listing.backward), (Names{"gather d mlp.down", "sum d mlp.norm"}));
  EXPECT_EQ(exchanges(listing.deferred), (Names{"gather mlp.norm", "sum d weights"}));
  EXPECT_EQ(exchanges(at_once.backward).size(), 4u);
  expect_deferred_calls_alone(listing);
  const std::size_t copy = at(listing.backward, "copy d mlp.down");
  EXPECT_EQ(copy, at(listing.backward, "d mlp.down") + 1);  // where that has been waited for
  EXPECT_TRUE(contains(listing.deferred[at(listing.deferred, "d mlp.down.weight")].reads,
                       listing.backward[copy].writes[0]));
}

// ---- order, find_phases -------------------------------------------------------------------------

/// The names of calls by phase, of forward or of backward with what is deferred.
std::vector<Names> phase_names(const std::vector<std::vector<PlacedCall>>& phases) {
  std::vector<Names> all;
  for (const std::vector<PlacedCall>& phase : phases) {
    all.emplace_back();
    for (const PlacedCall& call : phase) all.back().push_back(call.call.name);
  }
  return all;
}

TEST(Order, HandsExchangesOverBeforeProductsThatNeedThem) {
  Sketch s(setting(false, false, 2));
  const int n = s.norm(s.g.input, "n"), a = s.linear(n, "a"), b = s.linear(n, "b");
  const int c = s.attention({b, a}, "c");
  const int y = s.linear(c, "y", Keep::always, s.linear(b, "z", Keep::always, s.g.input));
  const Program program = derive(s.with_output(y));
  EXPECT_EQ(phase_names(program.forward),
            (std::vector<Names>{{"n", "a", "gather a"}, {"b"}, {"c"}, {"z", "y"}}));
}

TEST(Order, HandsDeferredExchangesOverBeforeProducts) {
  const Listing listing = in_order(mlp_over_tensor_ranks(true));
  const Calls& calls = listing.deferred;
  const std::size_t gather = at(calls, "gather mlp.norm"), down = at(calls, "d mlp.down.weight");
  EXPECT_LT(gather, down);
  EXPECT_LT(down, at(calls, "d mlp.up.weight"));  // which reads what was gathered
}

TEST(Order, DropsWhatIsDeferredAndNotRead) {
  Listing listing = list(Sketch(setting(false, true)).block());
  const std::size_t before = listing.deferred.size();
  Call unread = listing.deferred[at(listing.deferred, "m.norm of statistics")];
  unread.name = "unread";
  unread.writes = listing.graph.add_like(unread.writes, "");
  insert_at(listing.deferred, 0, unread);
  order(listing);
  EXPECT_FALSE(contains(names(listing.deferred), "unread"));
  EXPECT_EQ(listing.deferred.size(), before);
}

TEST(Order, MakesAgainJustBeforeTheReader) {
  const Listing listing = in_order(Sketch(setting(true)).block());
  const Calls& calls = listing.backward;
  EXPECT_EQ(at(calls, "m.act") + 1, at(calls, "d m.down.weight"));
  EXPECT_EQ(at(calls, "a") + 1, at(calls, "d a.out.weight"));
  const Listing deferring = in_order(Sketch(setting(false, true)).block());
  EXPECT_EQ(at(deferring.backward, "m.act") + 1, at(deferring.backward, "d m.act"));
  // What is made again and nobody reads any more is dropped.
  EXPECT_FALSE(contains(names(deferring.backward), "m.norm of statistics"));
  EXPECT_TRUE(contains(names(deferring.deferred), "m.norm of statistics"));
}

TEST(FindPhases, BeginsBehindExchangesAndWhereSomethingWaits) {
  const Program program = derive(Sketch(setting(false, false, 2)).block());
  // The last one begins where what was gathered is needed no longer.
  ASSERT_EQ(program.forward_phases.size(), 3u);
  EXPECT_TRUE(program.forward_phases[0].then);
  EXPECT_EQ(program.forward_phases[1].reads, (std::vector<int>{0}));
  EXPECT_TRUE(program.forward_phases[2].reads.empty());
  plan::check_reads(program.forward_phases, "unit", "forward");
  plan::check_reads(program.backward_phases, "unit", "backward");
  // The gradient of a weight runs while gradients of keys and values are summed.
  const std::vector<Names> phases = phase_names(program.backward);
  ASSERT_EQ(phases.size(), 5u);
  EXPECT_EQ(phases[2].back(), "sum d a.qkv.k, a.qkv.v");
  EXPECT_EQ(phases[3], Names{"d a.out.weight"});
  EXPECT_EQ(phases[4].front(), "round d a.qkv.k, a.qkv.v");
}

/// Without products between them one phase would read three.
TEST(FindPhases, ReadNoMoreExchangesThanPhasesMay) {
  Sketch s(setting(false, false, 2));
  const int a = s.linear(s.norm(s.g.input, "n"), "a");
  int y = a;
  Values all;
  for (const char* name : {"b", "c", "d"}) all.push_back(s.linear(a, name));
  for (int v : all) {
    y = s.attention({y, v}, s.g.values[v].name + "y");
    s.g.operations.back().forward.front().flops = 0;
  }
  const Program program = derive(s.with_output(s.linear(y, "y", Keep::always, s.g.input)));
  for (const plan::Phases* phases : {&program.forward_phases, &program.backward_phases})
    plan::check_reads(*phases, "unit", "a list");
}

// ---- place --------------------------------------------------------------------------------------

/// Runs a program on memory that holds, in place of each number, which value it is of. Throws where
/// a call does not find what it reads, or something is lost that it or others write.
class Memory {
 public:
  Memory(const Program& program, int output) : program_(program), output_(output) {}

  void run(bool recomputes) {
    begin(program_.forward_phases);
    for (std::size_t p = 0; p < program_.forward.size(); ++p) run(program_.forward, p, recomputes);
    if (!recomputes) require_all(Home::output, output_);
    begin(program_.backward_phases);
    const std::size_t at_once = program_.backward.size() - program_.deferred_phases;
    for (std::size_t p = 0; p < program_.backward.size(); ++p) {
      if (p == at_once) finish_backward();
      run(program_.backward, p, false);
    }
    if (program_.deferred_phases == 0) finish_backward();
  }

 private:
  static constexpr int lost = -1, scratch = -2, given = -3;
  using Words = std::vector<int>;

  void begin(const plan::Phases& phases) {
    phases_ = &phases;
    words_.erase(words_.lower_bound({Home::exchanged, 0}), words_.end());
  }
  void finish_backward() {
    if (program_.backward.empty()) return;
    require_all(Home::gradient, newest_gradient_);
    words_[{Home::gradient, 0}].assign(1000, lost);
    for (auto& [key, words] : words_)
      if (key.first == Home::exchanged) words.assign(words.size(), lost);
  }
  void require_all(Home home, int v) {
    const Words& words = words_[{home, 0}];
    for (std::int64_t i = 0; i < rows * width; ++i)
      if (words.at(static_cast<std::size_t>(i)) != v) throw std::runtime_error("a result is lost");
  }

  Words& words_of(Home home, std::size_t p, bool is_written) {
    const plan::Phase& phase = (*phases_)[p];
    const bool is_second = home == Home::second_exchanged;
    std::int64_t bytes = 4 * 1000;
    int key = 0;
    if (home == Home::exchanged || is_second) {
      key = is_written ? static_cast<int>(p) : phase.reads.at(is_second ? 1 : 0);
      home = Home::exchanged;
      bytes = (*phases_)[static_cast<std::size_t>(key)].then.value().bytes_out();
    }
    if (home == Home::handed) key = static_cast<int>(p), bytes = phase.then.value().bytes_in();
    if (home == Home::saved) bytes = program_.saved_bytes;
    if (home == Home::deferred) bytes = program_.deferred_bytes;
    if (home == Home::workspace) bytes = plan::workspace_bytes(*phases_, static_cast<int>(p));
    const bool is_given = home == Home::input || home == Home::gradient;
    Words& words = words_[{home, key}];
    words.resize(static_cast<std::size_t>(bytes / 4), is_given ? given : lost);
    return words;
  }
  template <class Do>
  void for_each(Place place, std::size_t p, bool is_written, const Do& act) {
    if (only_saves_ && place.spare >= 0) {
      place.home = Home::workspace;
      place.offset = place.spare;
    }
    Words& words = words_of(place.home, p, is_written);
    const std::int64_t first = place.offset / 4;
    const std::int64_t columns = place.element == Element::byte ? place.columns / 4 : place.columns;
    for (std::int64_t r = 0; r < place.rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        act(words.at(static_cast<std::size_t>(first + r * place.stride + c)));
  }

  void run(const std::vector<std::vector<PlacedCall>>& phases, std::size_t p, bool only_saves) {
    if (p == 0 || !(*phases_)[p - 1].keeps_workspace) words_[{Home::workspace, 0}].clear();
    only_saves_ = only_saves;
    for (const PlacedCall& call : phases[p])
      if (call.saves || !only_saves) run(call, p);
  }
  void run(const PlacedCall& placed, std::size_t p) {
    const Call& call = placed.call;
    const auto expect = [&](const Place& place, int v, bool is_written) {
      for_each(place, p, is_written, [&](int word) {
        if (word != v && (word != given || is_written))
          throw std::runtime_error(call.name + " does not find value " + std::to_string(v));
      });
    };
    const auto put = [&](const std::vector<Place>& places, const Values& values, bool checks) {
      for (std::size_t i = 0; i < places.size(); ++i) {
        const int v = values.empty() ? scratch : values[i];
        if (checks) expect(places[i], v, true);
        if (!checks) for_each(places[i], p, true, [&](int& word) { word = v; });
      }
    };
    const auto find = [&](bool is_written) {
      for (std::size_t i = 0; i < call.reads.size(); ++i)
        if (!is_written ||
            !any_of(call.replaces, [&](auto one) { return one.second == call.reads[i]; }))
          expect(placed.reads[i], call.reads[i], false);
      for (std::size_t i = 0; i < call.weights.size(); ++i)
        if (call.weights[i] < 0) expect(placed.weights[i], ~call.weights[i], false);
    };
    find(false);
    put(placed.scratch, {}, false);
    find(false);
    put(placed.writes, call.writes, false);
    find(true);
    put(placed.writes, call.writes, true);
    put(placed.scratch, {}, true);
    for (std::size_t i = 0; i < call.writes.size(); ++i)
      if (placed.writes[i].home == Home::gradient) newest_gradient_ = call.writes[i];
  }

  const Program& program_;
  int output_, newest_gradient_ = given;
  const plan::Phases* phases_ = nullptr;
  bool only_saves_ = false;
  std::map<std::pair<Home, int>, Words> words_;
};

const PlacedCall& placed(const std::vector<std::vector<PlacedCall>>& phases,
                         const std::string& name) {
  for (const std::vector<PlacedCall>& phase : phases)
    for (const PlacedCall& call : phase)
      if (call.call.name == name) return call;
  throw std::runtime_error("no call " + name);
}

TEST(Place, ReusesArrays) {
  const Program program = derive(Sketch(setting(false)).block());
  // What may be replaced is, in the saved array, and gradients lie on each other.
  EXPECT_EQ(placed(program.backward, "d m.act").writes[0].offset,
            placed(program.forward, "m.up").writes[0].offset);
  EXPECT_EQ(placed(program.backward, "d m.act").writes[0].home, Home::saved);
  EXPECT_EQ(placed(program.backward, "d a.norm").writes[0].home, Home::gradient);
  const Program dropping = derive(Sketch(setting(true)).block());
  EXPECT_EQ(placed(dropping.backward, "d m.act").writes[0].offset,
            placed(dropping.backward, "m.up").writes[0].offset);
  std::int64_t saved = 0, workspace = 0;
  for (const PlacedCall& call : program.forward[0])
    for (const Place& at : call.writes) saved += at.home == Home::saved ? 256 : 0;
  for (const PlacedCall& call : program.backward[0]) {
    for (const Place& at : call.writes) workspace += at.home == Home::workspace ? 256 : 0;
    workspace += call.scratch.empty() ? 0 : 256;
  }
  EXPECT_LE(program.saved_bytes, saved);
  EXPECT_LE(2 * program.backward_phases[0].workspace_bytes, workspace);
}

/// The gradient of a weight reads u behind the call that may replace it.
TEST(Place, ReplacesNothingThatIsReadLater) {
  Sketch s;
  const int u = s.linear(s.norm(s.g.input, "n"), "u");
  const int p = s.linear(u, "p", Keep::always, s.g.input);
  const int y = s.linear(s.activation(u, "c"), "y", Keep::always, p);
  const Program program = derive(s.with_output(y));
  EXPECT_EQ(placed(program.forward, "u").writes[0].home, Home::saved);
  EXPECT_EQ(placed(program.backward, "d c").writes[0].home, Home::workspace);
}

TEST(Place, LeavesWhatCrossesPhases) {
  const Program deferring = derive(Sketch(setting(false, true)).block());
  ASSERT_EQ(deferring.deferred_phases, 1);
  // Where saved queries, keys and values are dead, else in `deferred`.
  const PlacedCall& moved = placed(deferring.backward, "move d a.qkv.q d a.qkv.k d a.qkv.v");
  const PlacedCall& qkv = placed(deferring.forward, "a.qkv");
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(moved.writes[i].home, Home::saved);
    EXPECT_EQ(moved.writes[i].offset, qkv.writes[i].offset);
  }
  EXPECT_EQ(placed(deferring.backward, "copy d a.out").writes[0].home, Home::deferred);
  // Between two phases of backward the workspace is kept.
  const Program parts = derive(Sketch(setting(true, true, 2)).block());
  EXPECT_TRUE(
      any_of(parts.backward_phases, [](const plan::Phase& p) { return p.keeps_workspace; }));
  EXPECT_EQ(placed(parts.forward, "gather a.qkv.k, a.qkv.v").writes[0].home, Home::exchanged);
  EXPECT_EQ(placed(parts.backward, "sum d a.qkv.k, a.qkv.v").reads[0].home, Home::handed);
}

/// A name for how each value came about: two are the same if the same calls have made them of the
/// same values. What is made again is what it was. Throws where a call reads too early.
std::map<int, std::size_t> gradients_of(const Listing& listing) {
  const std::hash<std::string> hash;
  const auto mix = [&](std::size_t a, std::size_t b) { return a * 1000003 + b; };
  std::map<int, std::size_t> made, gradients;
  std::map<std::string, std::size_t> of_forward;
  of_forward["x"] = made[listing.graph.input] = 1;
  for (int v : listing.output_gradients) made[v] = 2;
  for (const Calls* calls : {&listing.forward, &listing.backward, &listing.deferred})
    for (const Call& call : *calls) {
      std::size_t all = hash(call.name);
      for (int v : call.reads) all = mix(all, made.at(v));
      for (int w : call.weights)
        all = mix(all, w < 0 ? made.at(~w) : static_cast<std::size_t>(w) + 3);
      const bool copies = starts(call.name, "copy ") || starts(call.name, "give ");
      if (copies) all = call.reads.empty() ? call.weights[0] + 3u : made.at(call.reads[0]);
      for (int v : call.writes) {
        const std::string& name = listing.value(v).name;
        made[v] = copies || v == call.writes.back() ? all : mix(all, hash(name));
        if (calls == &listing.forward) of_forward[name] = made[v];
        if (call.is_recomputed) made[v] = of_forward.at(name);
      }
      for (int v : call.reads)
        EXPECT_TRUE(!call.is_recomputed || made[v] == of_forward.at(listing.value(v).name))
            << call.name;
      for (int g : call.gradients) {
        if (g == Call::none) continue;
        EXPECT_TRUE(g < 0 || (gradients.count(g) == 0 && listing.graph.weights[g].trained))
            << call.name;
        (g < 0 ? made[~g] : gradients[g]) = all;
      }
    }
  return gradients;
}

double flops(const Calls& calls, bool gradients_alone) {
  double sum = 0.0;
  for (const Call& call : calls)
    if (!gradients_alone || !call.is_recomputed)
      sum += call.flops - (gradients_alone ? call.repeated_flops : 0.0);
  return sum;
}

/// A few parts, each with the residual, by chance. Names are the same in all settings.
Graph random_graph(std::mt19937& random, const Setting& setting) {
  const auto chance = [&](unsigned of) { return random() % of == 0; };
  Sketch s(setting);
  for (const char* part : {"0", "1", "2"})
    for (const char* weight : {".norm", ".qkv", ".out", ".up", ".down"})
      if (chance(4)) s.frozen.insert(part + std::string(weight));
  int x = s.g.input;
  for (const char* part : {"0", "1", "2"}) {
    const std::string name = part;
    const unsigned kind = random() % 4;
    if (kind == 0) x = s.add_attention(x, name);
    if (kind == 1) x = s.add_mlp(x, name);
    if (kind >= 2) {  // both read one norm
      const int n = s.norm(x, name + ".norm", chance(2) ? Keep::norms : Keep::always);
      const int up = s.linear(n, name + ".up", chance(2) ? Keep::mlp : Keep::always);
      const int a = s.attention(s.qkv(n, name + ".qkv"), name + ".a",
                                chance(2) ? Keep::attention : Keep::always);
      x = s.linear(a, name + ".out", Keep::always, x);
      x = s.linear(kind == 2 ? s.activation(up, name + ".act") : up, name + ".down", Keep::always,
                   x);
    }
  }
  return s.with_output(x);
}

TEST(Derive, FindsProgramsOfRandomGraphs) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::map<int, std::size_t> expected;
    for (const std::int64_t parts : {1, 2})
      for (const bool defers : {false, true})
        for (unsigned drops = 0; drops < 8; ++drops) {
          SCOPED_TRACE(::testing::Message() << "seed " << seed << ", parts " << parts << ", defers "
                                            << defers << ", drops " << drops);
          std::mt19937 random(seed);
          Setting set = setting(false, defers, parts);
          set.drops_norms = drops & 1u, set.drops_attention = drops & 2u,
          set.drops_mlp = drops & 4u;
          const Graph graph = random_graph(random, set);
          const Listing listing = in_order(graph);
          const auto gradients = gradients_of(listing);
          if (drops == 0 && !defers) expected = gradients;
          EXPECT_EQ(gradients, expected);
          for (std::size_t w = 0; w < graph.weights.size(); ++w)
            EXPECT_EQ(gradients.count(static_cast<int>(w)), graph.weights[w].trained ? 1u : 0u);
          if (defers) expect_deferred_calls_alone(listing);
          Program program;
          ASSERT_NO_THROW(program = derive(graph));
          ASSERT_NO_THROW(Memory(program, graph.outputs[0]).run(false));
          ASSERT_NO_THROW(Memory(program, graph.outputs[0]).run(true));
          plan::check_reads(program.forward_phases, "unit", "forward");
          plan::check_reads(program.backward_phases, "unit", "backward");
          EXPECT_EQ(plan::flops(program.forward_phases), flops(listing.forward, false));
          EXPECT_EQ(plan::flops(program.backward_phases),
                    flops(listing.backward, false) + flops(listing.deferred, false));
          EXPECT_EQ(program.gradient_flops,
                    flops(listing.backward, true) + flops(listing.deferred, true));
        }
    if (HasFailure()) return;
  }
}

// ---- place_check --------------------------------------------------------------------------------

/// A listing and its program, call by call, which tests break both.
struct Both {
  Listing listing;
  Program program;

  explicit Both(const Graph& graph) : listing(in_order(graph)) {
    program = place(listing, find_phases(listing));
    listing.forward = listing.backward = listing.deferred = {};  // some are added: moves
    const std::size_t at_once = program.backward.size() - program.deferred_phases;
    for (const auto& phase : program.forward)
      for (const PlacedCall& call : phase) listing.forward.push_back(call.call);
    for (std::size_t p = 0; p < program.backward.size(); ++p)
      for (const PlacedCall& call : program.backward[p])
        (p < at_once ? listing.backward : listing.deferred).push_back(call.call);
    listing.graph.values.resize(listing.graph.values.size() + 20, {"moved"});
  }
  /// The call of the listing, and the phase and the index there, of a call of the program.
  struct At {
    Calls* calls;
    std::size_t call;
    std::vector<PlacedCall>* phase;
    std::size_t index;
    int run;
  };
  std::vector<At> calls() {
    std::vector<At> all;
    std::vector<std::pair<Calls*, std::size_t>> listed;
    for (Calls* calls : {&listing.forward, &listing.backward, &listing.deferred})
      for (std::size_t i = 0; i < calls->size(); ++i) listed.emplace_back(calls, i);
    int run = 0;
    for (auto* phases : {&program.forward, &program.backward})
      for (std::size_t p = 0; p < phases->size(); ++p) {
        for (std::size_t i = 0; i < (*phases)[p].size(); ++i) {
          const auto [list_of, number] = listed.at(all.size());
          all.push_back({list_of, number, &(*phases)[p], i, run});
        }
        const plan::Phases& described =
            phases == &program.forward ? program.forward_phases : program.backward_phases;
        if (!described[p].keeps_workspace) ++run;
      }
    return all;
  }
  static void erase(const At& at) {
    at.calls->erase(at.calls->begin() + static_cast<std::ptrdiff_t>(at.call));
    at.phase->erase(at.phase->begin() + static_cast<std::ptrdiff_t>(at.index));
  }
  template <class Act>
  void for_each_place(const Act& act) {
    for (const At& at : calls()) {
      PlacedCall& call = (*at.phase)[at.index];
      for (std::size_t i = 0; i < call.reads.size(); ++i) act(call.call.reads[i], call.reads[i]);
      for (std::size_t i = 0; i < call.writes.size(); ++i) act(call.call.writes[i], call.writes[i]);
      for (std::size_t i = 0; i < call.weights.size(); ++i)
        if (call.call.weights[i] < 0) act(~call.call.weights[i], call.weights[i]);
    }
  }
  std::map<int, Place> places() {
    std::map<int, Place> all;
    for_each_place([&](int v, Place& place) { all[v] = place; });
    return all;
  }
  /// What the check says; empty: nothing.
  std::string check() const {
    try {
      check_places(listing, program);
      check_gradients(program);
    } catch (const std::logic_error& error) {
      return error.what();
    }
    return "";
  }
  std::string run() {
    try {
      for (const bool recomputes : {false, true})
        Memory(program, listing.graph.outputs[0]).run(recomputes);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
  /// Breaks it, or not, in one way of several by chance; says how.
  std::string break_by_chance(std::mt19937& random) {
    const std::vector<At> all = calls();
    const At at = all[random() % all.size()];
    const auto call_at = [&](std::size_t i) {
      return at.calls->begin() + static_cast<std::ptrdiff_t>(i);
    };
    const auto placed_at = [&](std::size_t i) {
      return at.phase->begin() + static_cast<std::ptrdiff_t>(i);
    };
    PlacedCall& placed = (*at.phase)[at.index];
    const unsigned way = random() % 5;
    if (way == 0) {
      erase(at);
      return "drops a call";
    }
    if (way == 1) {
      const std::size_t to = at.index + random() % (at.phase->size() - at.index);
      std::rotate(call_at(at.call), call_at(at.call + 1), call_at(at.call + 1 + to - at.index));
      std::rotate(placed_at(at.index), placed_at(at.index + 1), placed_at(to + 1));
      return "runs a call later";
    }
    if (way == 2) {
      placed.call.replaces.clear();
      (*call_at(at.call)).replaces.clear();
      return "replaces nothing";
    }
    const std::map<int, Place> of = places();
    const auto one = std::next(of.begin(), static_cast<std::ptrdiff_t>(random() % of.size()));
    const auto other = std::next(of.begin(), static_cast<std::ptrdiff_t>(random() % of.size()));
    if (way == 3 && !placed.scratch.empty() && other->second.home == Home::workspace)
      placed.scratch[0].offset = other->second.offset;
    else if (way == 3 || one->second.home == other->second.home)
      for_each_place([&](int v, Place& place) {
        if (v != one->first) return;
        place.offset = way == 3 ? place.offset + 16 : other->second.offset;
      });
    return "shifts";
  }
};

/// The program that runs on Memory tells what is wrong; results that lie elsewhere and whole are
/// nothing that the check knows.
TEST(CheckPlaces, FindsWhatBreaksPrograms) {
  std::map<std::string, int> found;
  for (unsigned seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    Both both(Sketch(setting(seed % 2 == 0, seed % 3 == 0, 1 + seed % 5 / 3)).block());
    ASSERT_EQ(both.check(), "");
    const std::string how = both.break_by_chance(random);
    const std::string wrong = both.run(), said = both.check();
    const bool is_unknown = starts(wrong, "a result");
    if (wrong.empty() || (how == "shifts" && is_unknown)) continue;
    ASSERT_NE(said, "") << how << ": " << wrong;
    ++found[how];
  }
  for (const char* how : {"drops a call", "runs a call later", "replaces nothing", "shifts"})
    EXPECT_GT(found[how], 5) << how;
}

/// What is saved and what is exchanged come of one call, and forward makes the first again alone.
TEST(CheckPlaces, WalksOverARecomputation) {
  Sketch s(setting(true, false, 2));
  const int n = s.norm(s.g.input, "n"), a = s.value("a", Keep::cheap), kept = s.value("kept");
  Call split{"split", {n}, {a, kept}};
  Call backward{"d split", {kept, ~a}, {~n}};
  backward.can_add = true;
  s.g.operations.push_back({{split}, {backward}});
  const int b = s.attention({s.linear(n, "b"), a}, "c");
  Both both(s.with_output(s.linear(b, "y", Keep::always, s.g.input)));
  ASSERT_EQ(both.check(), "");
  EXPECT_EQ(both.run(), "");
  Place& spare = const_cast<Place&>(placed(both.program.forward, "split").writes[0]);
  ASSERT_EQ(spare.home, Home::handed);
  ASSERT_GE(spare.spare, 0);
  spare.spare = placed(both.program.forward, "n").writes[0].offset;
  EXPECT_EQ(both.check(), "split overwrites n");
  spare.spare = 1 << 20;
  EXPECT_EQ(both.check(), "split reaches beyond the end of a buffer");
}

TEST(CheckPlaces, SeesWhatIsLostWithAWorkspace) {
  Both both(Sketch(setting(true, true, 2)).block());
  for (plan::Phase& phase : both.program.backward_phases) phase.workspace_bytes = 1 << 20;
  int kept = 0;
  for (plan::Phase& phase : both.program.backward_phases) {
    if (!std::exchange(phase.keeps_workspace, false)) continue;
    EXPECT_NE(both.check().find("or after it is lost"), std::string::npos);
    phase.keeps_workspace = true;
    ++kept;
  }
  EXPECT_GT(kept, 0);
}

TEST(CheckPlaces, SeesWhereBuffersEnd) {
  Both both(Sketch(setting(true, true, 2)).block());
  ASSERT_EQ(both.check(), "");
  plan::Phases& backward = both.program.backward_phases;
  const auto largest = std::max_element(backward.begin(), backward.end(),
                                        [](const plan::Phase& a, const plan::Phase& b) {
                                          return a.workspace_bytes < b.workspace_bytes;
                                        });
  for (std::int64_t* bytes : {&both.program.saved_bytes, &both.program.deferred_bytes,
                              &both.program.output_bytes, &largest->workspace_bytes}) {
    ASSERT_GT(*bytes, 0);
    const std::int64_t before = std::exchange(*bytes, *bytes - 4);
    EXPECT_NE(both.check().find("reaches beyond the end of a buffer"), std::string::npos);
    *bytes = before;
  }
  for (plan::Phase& phase : both.program.forward_phases) {
    if (!phase.then) continue;
    phase.then->elements -= 2;
    EXPECT_NE(both.check(), "");
    phase.then->elements += 2;
  }
  EXPECT_EQ(both.check(), "");
}

TEST(CheckPlaces, NamesCallAndValue) {
  const Graph graph = Sketch(setting(false)).block();
  const auto broken = [&](const std::string& dropped) {
    Both both(graph);
    for (const Both::At& at : both.calls())
      if ((*at.phase)[at.index].call.name == dropped) {
        both.erase(at);
        break;
      }
    return both.check();
  };
  EXPECT_EQ(broken("m.up"), "m.act reads before it is written, or after it is lost: m.up");
  EXPECT_EQ(broken("m.down"), "no call writes the output m.down");
  EXPECT_EQ(broken("d m.up.weight"), "of the gradient of m.up 0 elements are computed, of 16");
  Both both(graph);
  both.for_each_place([&](int v, Place& place) {
    if (v == id(graph, "m.norm.statistics")) place.offset = both.places()[id(graph, "a")].offset;
  });
  EXPECT_EQ(both.check(), "m.norm overwrites a");
}

TEST(CheckPlaces, SeesResultsToTheEndAndWhatIsReplacedBeside) {
  const Graph graph = Sketch(setting(false)).block();
  for (const bool is_forward : {true, false}) {
    Both both(graph);
    std::vector<PlacedCall>& phase = (is_forward ? both.program.forward : both.program.backward)[0];
    PlacedCall late;
    late.call = Call{"late", {}, {static_cast<int>(both.listing.graph.values.size()) - 1}};
    late.writes = phase.back().writes;
    phase.push_back(late);
    (is_forward ? both.listing.forward : both.listing.backward).push_back(late.call);
    EXPECT_EQ(both.check(), is_forward ? "late overwrites m.down" : "late overwrites d x");
  }
  Both both(graph);
  both.for_each_place([&](int v, Place& place) {
    if (both.listing.value(v).name == "d m.up") place.offset += 16;
  });
  both.program.saved_bytes += 16;
  EXPECT_EQ(both.check(), "d m.act overwrites m.up");
}

}  // namespace
}  // namespace ostrakon::test
