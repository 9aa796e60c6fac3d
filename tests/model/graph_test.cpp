// SPDX-License-Identifier: Apache-2.0
// What each pass over a graph of operations guarantees.
#include <gtest/gtest.h>

#include <functional>
#include <ostrakon/base/text.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/graph/operations.hpp>

#include "model/golden_file.hpp"
#include "model/sketch.hpp"

namespace ostrakon::test {
namespace {

using namespace sketches;

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
  const model::Decoder<float> decoder(m, leaf);
  for (const model::Parameter& one : decoder.unit(1).parameters())
    if (starts(one.name, "mlp.")) parameters.push_back(one);
  model::lay_out_parameters(parameters, "block.0", {}, leaf.tensor_pieces());
  Operations<float> block(leaf, {}, parameters, m.width);
  const int x = block.input(), n = block.norm(x, "mlp.norm", m.norm_settings());
  const int up = block.linear(n, "mlp.up", m.ffn_width, Keep::mlp, true);
  const int activated = block.activation(up, "mlp.activated", m.activation);
  return std::move(block).take({block.linear_onto(x, activated, "mlp.down", "y")});
}

/// Names of the calls of each phase, one a line: those that are made again have a ', those that add
/// to a gradient a +, and an exchange, which ends its phase, a >.
std::string show(const std::vector<std::vector<PlacedCall>>& phases) {
  std::string text;
  for (const std::vector<PlacedCall>& phase : phases) {
    std::string line;
    for (const PlacedCall& placed : phase) {
      const Call& one = placed.call;
      line += (line.empty() ? "" : ", ") + one.name + (one.is_recomputed ? "'" : "") +
              (one.adds ? "+" : "") + (one.exchange ? " >" : "");
    }
    text += "    " + line + "\n";
  }
  return text;
}
std::string show(const std::string& title, const Graph& graph) {
  if (graph.setting.defers) expect_deferred_calls_alone(in_order(graph));
  const Program program = derive(graph);
  for (const plan::Phases* phases : {&program.forward_phases, &program.backward_phases})
    plan::check_reads(*phases, "unit", "a list");
  std::string kept;
  for (int v : program.kept) kept += (kept.empty() ? "" : ", ") + graph.values[v].name;
  return title + "\n  kept: " + (kept.empty() ? "nothing" : kept) + "\n  forward\n" +
         show(program.forward) + "  backward, " + std::to_string(program.deferred_phases) +
         " deferred\n" + show(program.backward);
}

/// A block where these weights are frozen.
auto freezing(const std::set<std::string>& names) {
  return [names](Sketch& s) {
    s.frozen = names;
    return s.block();
  };
}

/// Which calls there are, in which order, and what is kept.
TEST(Derive, ListsCallsOfPrograms) {
  struct Row {
    std::string title;
    Setting setting;
    std::function<Graph(Sketch&)> build;
  };
  Setting drops_norms, drops_attention, drops_mlp;
  drops_norms.drops_norms = drops_attention.drops_attention = drops_mlp.drops_mlp = true;
  const Setting at_once, defers = setting(false, true), parts = setting(false, false, 2);
  const auto fused = [](Setting one) {
    one.fuses = true;
    return one;
  };
  const auto block = freezing({});
  const Row rows_of_sketches[] = {
      {"norms add to the residual's gradient, and are made again of statistics", at_once, block},
      {"norms are dropped", drops_norms, block},
      {"attention is dropped", drops_attention, block},
      {"mlp is dropped", drops_mlp, block},
      {"all are dropped, and made just before the reader", setting(true), block},
      {"nothing is computed or made again for what is frozen", at_once,
       freezing({"a.norm", "m.up", "m.down"})},
      {"keys and values are gathered twice, and a product runs while gradients are summed", parts,
       block},
      {"small gradients, and copies of what backward changes, wait for deferred calls", defers,
       block},
      {"deferring, dropping all, two parts", setting(true, true, 2), block},
      {"nothing is deferred without a trained matrix", defers,
       freezing({"a.qkv", "a.out", "m.up", "m.down"})},
      {"products add to the gradient of what is read several times", at_once,
       [](Sketch& s) {
         const int n = s.norm(s.input(), "n"), a = s.linear(n, "a"), b = s.linear(n, "b");
         const int y = s.linear(a, "y", Keep::always, s.linear(b, "z", Keep::always, s.input()));
         return s.with_output(s.linear(s.activation(n, "c"), "w", Keep::always, y));
       }},
      {"an activation does not: a call of its own adds its gradient", at_once,
       [](Sketch& s) {
         const int m = s.norm(s.input(), "m"), d = s.activation(m, "d"), e = s.linear(m, "e");
         const int p = s.linear(d, "p", Keep::always, s.input());
         return s.with_output(s.linear(e, "q", Keep::always, p));
       }},
      {"what nobody reads has no gradient", at_once,
       [](Sketch& s) {
         s.frozen = {"unused"};
         const int n = s.norm(s.input(), "n");
         s.norm(s.input(), "unused");
         return s.with_output(s.linear(n, "y", Keep::always, s.input()));
       }},
      {"without a residual the input's gradient is moved to where the output's was", at_once,
       [](Sketch& s) { return s.with_output(s.linear(s.input(), "y")); }},
      {"products that an exchange does not need come behind it", parts,
       [](Sketch& s) {
         const int n = s.norm(s.input(), "n"), a = s.linear(n, "a"), b = s.linear(n, "b");
         const int z = s.linear(b, "z", Keep::always, s.input());
         return s.with_output(s.linear(s.attention({b, a}, "c"), "y", Keep::always, z));
       }},
      {"keys that are values, too, are gathered once, and both gradients count", parts,
       [](Sketch& s) {
         const int q = s.linear(s.input(), "q"), kv = s.linear(s.input(), "kv");
         const int a = s.attention({q, kv, kv}, "a");
         return s.with_output(s.linear(a, "y", Keep::always, s.input()));
       }},
      {"no phase reads more exchanges than it may", parts,
       [](Sketch& s) {
         const int a = s.linear(s.norm(s.input(), "n"), "a");
         const Values all = {s.linear(a, "b"), s.linear(a, "c"), s.linear(a, "d")};
         int y = a;
         for (int v : all) {
           y = s.attention({y, v}, s.g.values[v].name + "y");
           s.g.operations.back().forward.front().flops = 0;
         }
         return s.with_output(s.linear(y, "y", Keep::always, s.input()));
       }},
      {"tensor ranks exchange the same twice", at_once,
       [](Sketch&) { return mlp_over_tensor_ranks(false); }},
      {"deferring, they do not, and hand exchanges over before products", at_once,
       [](Sketch&) { return mlp_over_tensor_ranks(true); }},
      {"one kernel for what is made again, and for gradients by the same values", fused(at_once),
       block},
      {"fused, no norm is made again apart from its statistics", fused(drops_norms), block},
      {"fused, what is made again for a product of forward's stays apart", fused(drops_mlp), block},
      {"fused, parts", fused(parts), block},
      {"fused, what is deferred stays apart", fused(defers), block},
      {"fused, no gradient of a product waits where that takes more memory", fused(at_once),
       [](Sketch& s) {
         const int n = s.norm(s.input(), "n");
         const int a = s.attention(s.qkv(n, "qkv"), "a");
         const int up = s.value("up", Keep::always, 4 * width);
         s.product(n, "up", {up}, -1);
         const int y = s.linear(a, "out", Keep::always, s.input());
         return s.with_output(s.linear(up, "down", Keep::always, y));
       }}};
  std::string found;
  for (const Row& row : rows_of_sketches) {
    Sketch sketch(row.setting);
    found += show(row.title, row.build(sketch));
  }
  expect_lines_of("programs.txt", found);
}

TEST(Differentiate, RefusesACallWithSomeOfItsArguments) {
  Sketch s;
  const Values qkv = s.qkv(s.input(), "qkv");
  const int z = s.linear(qkv[0], "z", Keep::always, s.input());
  EXPECT_THROW(differentiate(s.with_output(z)), std::logic_error);
}

TEST(Order, DropsWhatIsDeferredAndNotRead) {
  Listing listing = in_order(Sketch(setting(false, true)).block());
  const std::size_t before = listing.deferred.size();
  Call unread = named(listing.deferred, "m.norm of statistics");
  unread.writes = listing.graph.add_like(unread.writes, "");
  insert_at(listing.deferred, 0, unread);
  order(listing);
  EXPECT_EQ(listing.deferred.size(), before);
}

// ---- division -----------------------------------------------------------------------------------

TEST(Division, GathersInOneMessageAndSumsGradients) {
  const Graph graph = Sketch(setting(false, false, 2)).block();
  const Listing listing = differentiate(graph);
  const Call& gather = named(listing.forward, "gather a.qkv.k, a.qkv.v");
  ASSERT_TRUE(gather.exchange);
  EXPECT_EQ(gather.exchange->kind, plan::ExchangeKind::gather);
  EXPECT_EQ(gather.exchange->elements, 2 * 2 * rows * width);
  EXPECT_EQ(gather.exchange->span.ranks, 2);
  // They stay columns of one array, without the queries.
  const Value &k = listing.value(gather.writes[0]), &v = listing.value(gather.writes[1]);
  EXPECT_EQ(k.group, v.group);
  EXPECT_EQ(k.first_column + width, v.first_column);
  EXPECT_EQ(listing.graph.group_columns[static_cast<std::size_t>(k.group)], 2 * width);
  EXPECT_EQ(named(listing.forward, "a").reads,
            (Values{id(graph, "a.qkv.q"), gather.writes[0], gather.writes[1]}));

  const Call& backward = named(listing.backward, "d a");
  const Call& sum = named(listing.backward, "sum d a.qkv.k, a.qkv.v");
  const Call& round = named(listing.backward, "round d a.qkv.k, a.qkv.v");
  EXPECT_EQ(sum.exchange->kind, plan::ExchangeKind::reduce_scatter);
  EXPECT_EQ(sum.reads, (Values{backward.writes[1], backward.writes[2]}));
  EXPECT_EQ(round.reads, sum.writes);
  EXPECT_EQ(named(listing.backward, "d a.qkv.weight").reads,
            (Values{backward.writes[0], round.writes[0], round.writes[1], id(graph, "a.norm")}));
  for (const Calls* calls : {&listing.forward, &listing.backward})
    for (const Call& call : *calls)
      for (int r : call.reads)
        EXPECT_EQ(listing.value(r).rows,
                  listing.value(r).part_distribution == Distribution::rows ? rows : 2 * rows)
            << listing.value(r).name;
}

/// An operation on columns hands its leaves over, one on rows their sum.
TEST(Division, SumsGradientsOfWholeWeightsLeafByLeaf) {
  Setting setting;
  setting.pieces = 4;
  setting.tensor_ranks = 2;
  Sketch s(setting);
  constexpr std::int64_t leaves[] = {5, 1};
  int x = s.input();
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
  const Call& join = named(listing.backward, "join d weights");
  const Call& sum = named(listing.backward, "sum d weights");
  const Call& give = named(listing.backward, "give d weights");
  ASSERT_EQ(join.reads.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(listing.value(join.reads[i]).rows, 1);
    EXPECT_EQ(listing.value(join.reads[i]).columns, leaves[i] * 12);
    EXPECT_EQ(listing.value(join.reads[i]).tensor_distribution, Distribution::partial);
  }
  EXPECT_EQ(sum.exchange->elements, (5 + 1) * 12);
  EXPECT_EQ(join.leaves, (std::vector<std::int64_t>{5, 1}));
  EXPECT_EQ(give.leaves, join.leaves);
  // Two sums of leaves wait at most, of what the rank has of the weight.
  EXPECT_EQ(give.scratch, (std::vector<std::int64_t>{2 * 6 * 4}));
}

TEST(Division, CachesRowsOfMoreTokensOfWhatIsTakenWhole) {
  Setting s;
  s.decodes = true;
  const Listing listing = in_order(Sketch(s).block());
  for (const Value& value : listing.graph.values) {
    const bool is_cached = starts(value.name, "cached ");
    EXPECT_EQ(value.is_cached, is_cached) << value.name;
    EXPECT_EQ(value.rows, is_cached ? cached_rows : rows) << value.name;
  }
  ASSERT_EQ(listing.kept.size(), 2u);  // keys and values, and no queries beside them
  const int group = listing.value(*listing.kept.begin()).group;
  EXPECT_EQ(listing.graph.columns_of_group(group), 2 * width);
  EXPECT_TRUE(listing.backward.empty());
}

}  // namespace
}  // namespace ostrakon::test
