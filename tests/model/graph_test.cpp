// SPDX-License-Identifier: Apache-2.0
// Graphs of operations without kernels: what each pass guarantees, and that places are checked.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/model/graph/lists.hpp>
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
      operation.adds_to = {onto};
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
    g.operations.back().again = Call{name + " of statistics", {x, s}, {y}, {w}};
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
  int attention(const Values& inputs, const std::string& name, Keep keep = Keep::attention) {
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
    g.operations.back().over_parts.assign(inputs.size(), OverParts::whole);
    g.operations.back().over_parts.front() = OverParts::rows;
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
  divide_parts(graph);
  if (graph.setting.decoded_tokens > 0) cache(graph);
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

TEST(Differentiate, RefusesAnInputGradientThatLiesElsewhere) {
  Sketch s;
  EXPECT_THROW(differentiate(s.with_output(s.linear(s.g.input, "y"))), std::logic_error);
}

// ---- divide_parts, cache ------------------------------------------------------------------------

TEST(DivideParts, GathersInOneMessageAndSumsGradients) {
  Graph graph = Sketch(setting(false, false, 2)).block();
  divide_parts(graph);
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
                  listing.value(r).over_parts == OverParts::rows ? rows : 2 * rows)
            << listing.value(r).name;
}

/// Keys that are values, too: each gradient of theirs counts.
TEST(DivideParts, TakesAValueWholeTwiceAndNotByRowsToo) {
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
  EXPECT_THROW(derive(s.with_output(y)), std::logic_error);
}

TEST(Cache, HasRowsOfAllTokensOfWhatIsTakenWhole) {
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
      if (call.is_again) {
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
  EXPECT_TRUE(again.is_again && again.exchange);
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
            (std::vector<Names>{{"n", "a", "gather a"}, {"b"}, {"c", "z", "y"}}));
}

TEST(Order, MakesAgainJustBeforeTheReader) {
  const Listing listing = in_order(Sketch(setting(true)).block());
  const Calls& calls = listing.backward;
  EXPECT_EQ(at(calls, "m.act") + 1, at(calls, "d m.down.weight"));
  EXPECT_EQ(at(calls, "a") + 1, at(calls, "d a.out.weight"));
  // What is made again and nobody reads is dropped: the product that the gradient of `up` needs is.
  Sketch frozen(setting(true));
  frozen.frozen = {"m.up", "m.down", "a.qkv", "a.out"};
  const Names names_left = names(in_order(frozen.block()).backward);
  EXPECT_TRUE(contains(names_left, "m.up"));
  EXPECT_FALSE(contains(names_left, "m.act"));
}

TEST(FindPhases, BeginsBehindExchangesAndWhereSomethingWaits) {
  const Program program = derive(Sketch(setting(false, false, 2)).block());
  ASSERT_EQ(program.forward_phases.size(), 2u);
  EXPECT_TRUE(program.forward_phases[0].then);
  EXPECT_EQ(program.forward_phases[1].reads, (std::vector<int>{0}));
  plan::check_reads(program.forward_phases, "unit", "forward");
  plan::check_reads(program.backward_phases, "unit", "backward");
  // A product runs between the exchange in backward and what waits for it.
  const std::vector<Names> phases = phase_names(program.backward);
  const auto sum = std::find_if(phases.begin(), phases.end(),
                                [](const Names& all) { return starts(all.back(), "sum d "); });
  ASSERT_NE(sum, phases.end());
  ASSERT_NE(sum + 1, phases.end());
  EXPECT_FALSE(contains(*(sum + 1), "round d a.qkv.k, a.qkv.v") &&
               contains(*(sum + 1), "d a.out.weight"));
}

/// One phase would read three exchanges.
TEST(FindPhases, ReadNoMoreExchangesThanPhasesMay) {
  Sketch s(setting(false, false, 2));
  const int a = s.linear(s.norm(s.g.input, "n"), "a");
  int y = s.g.input;
  Values all;
  for (const char* name : {"b", "c", "d"}) all.push_back(s.linear(a, name));
  for (int v : all)
    y = s.linear(s.attention({a, v}, s.g.values[v].name + "a"), s.g.values[v].name + "y",
                 Keep::always, y);
  const Program program = derive(s.with_output(y));
  for (const plan::Phases* phases : {&program.forward_phases, &program.backward_phases}) {
    plan::check_reads(*phases, "unit", "a list");
    EXPECT_GE(std::count_if(phases->begin(), phases->end(),
                            [](const plan::Phase& p) { return p.then.has_value(); }),
              3);
  }
}

}  // namespace
}  // namespace ostrakon::test
