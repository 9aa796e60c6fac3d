// SPDX-License-Identifier: Apache-2.0
// Programs of graphs: where values lie, and that the check of places finds what breaks them.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/graph/passes.hpp>
#include <random>
#include <sstream>

#include "model/sketch.hpp"
#include "support/messages.hpp"

namespace ostrakon::test {
namespace {

using namespace sketches;

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
    words_.erase(words_.lower_bound({Home::recv_buffer, 0}), words_.end());
  }
  void finish_backward() {
    if (program_.backward.empty()) return;
    require_all(Home::gradient, newest_gradient_);
    words_[{Home::gradient, 0}].assign(1000, lost);
    for (auto& [key, words] : words_)
      if (key.first == Home::recv_buffer) words.assign(words.size(), lost);
  }
  void require_all(Home home, int v) {
    const Words& words = words_[{home, 0}];
    for (std::int64_t i = 0; i < rows * width; ++i)
      if (words.at(static_cast<std::size_t>(i)) != v) throw std::runtime_error("a result is lost");
  }

  Words& words_of(Home home, std::size_t p, bool is_written) {
    const plan::Phase& phase = (*phases_)[p];
    const bool is_second = home == Home::second_recv_buffer;
    std::int64_t bytes = 4 * 1000;
    int key = 0;
    if (home == Home::recv_buffer || is_second) {
      key = is_written ? static_cast<int>(p) : phase.reads.at(is_second ? 1 : 0);
      home = Home::recv_buffer;
      bytes = (*phases_)[static_cast<std::size_t>(key)].then.value().bytes_out();
    }
    if (home == Home::send_buffer) key = static_cast<int>(p), bytes = phase.then.value().bytes_in();
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
  const Program program = derive(Sketch().block());
  // What may be replaced is, in the saved array, and gradients lie on each other.
  EXPECT_EQ(placed(program.backward, "d m.act").writes[0].offset,
            placed(program.forward, "m.up").writes[0].offset);
  EXPECT_EQ(placed(program.backward, "d m.act").writes[0].home, Home::saved);
  EXPECT_EQ(placed(program.backward, "d a.norm").writes[0].home, Home::gradient);
  const Program dropping = derive(Sketch(setting(true)).block());
  EXPECT_EQ(placed(dropping.backward, "d m.act").writes[0].offset,
            placed(dropping.backward, "m.up").writes[0].offset);
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
  EXPECT_EQ(placed(parts.forward, "gather a.qkv.k, a.qkv.v").writes[0].home, Home::recv_buffer);
  EXPECT_EQ(placed(parts.backward, "sum d a.qkv.k, a.qkv.v").reads[0].home, Home::send_buffer);
}

/// A name for how each value came about: two are the same if the same calls have made them of the
/// same values. What is made again is what it was. Throws where a call reads too early.
std::map<int, std::size_t> gradients_of(const Listing& listing) {
  const std::hash<std::string> hash;
  const auto mix = [&](std::size_t a, std::size_t b) { return a * 1000003 + b; };
  std::map<int, std::size_t> made, gradients;
  std::map<std::string, std::size_t> of_forward;
  of_forward["x"] = made[listing.graph.inputs.front()] = 1;
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
  int x = s.input();
  for (const char* part : {"0", "1", "2"}) {
    const std::string name = part;
    const unsigned kind = random() % 5;
    if (kind == 0) x = s.add_attention(x, name);
    if (kind == 1) x = s.add_mlp(x, name);
    if (kind >= 2) {  // both read one norm
      const int n = s.norm(x, name + ".norm", chance(2) ? Keep::norms : Keep::always);
      const int up = s.linear(n, name + ".up", chance(2) ? Keep::mlp : Keep::always);
      const int a = s.attention(s.qkv(n, name + ".qkv"), name + ".a",
                                chance(2) ? Keep::attention : Keep::always);
      x = s.linear(a, name + ".out", Keep::always, x);
      if (kind == 4) x = s.linear(up, name + ".more", Keep::always, x);  // behind the activation
      x = s.linear(kind == 3 ? up : s.activation(up, name + ".act"), name + ".down", Keep::always,
                   x);
    }
  }
  return s.with_output(x);
}

/// All calls of a program, or in place of one that a kernel computes with others each of these.
std::vector<const PlacedCall*> calls_of(const Program& program, bool apart = false) {
  std::vector<const PlacedCall*> all;
  for (const auto* phases : {&program.forward, &program.backward})
    for (const auto& phase : *phases)
      for (const PlacedCall& one : phase) {
        if (!apart || one.parts.empty()) all.push_back(&one);
        for (const PlacedCall& part : one.parts)
          if (apart) all.push_back(&part);
      }
  return all;
}
/// Both compute the same calls; copies to where arrays are dead aside.
void expect_equal_calls(const Program& fused, const Program& apart) {
  const auto described = [](const Program& program) {
    std::multiset<std::string> all;
    for (const PlacedCall* one : calls_of(program, true)) {
      if (starts(one->call.name, "move")) continue;
      std::ostringstream text;
      text << one->call.name << " of " << one->reads.size() << ", " << one->scratch.size();
      for (int w : one->call.gradients) text << ' ' << w;
      all.insert(text.str());
    }
    return all;
  };
  EXPECT_EQ(described(fused), described(apart));
  EXPECT_EQ(fused.kept, apart.kept);
  EXPECT_EQ(plan::flops(fused.backward_phases), plan::flops(apart.backward_phases));
}

TEST(Derive, FindsProgramsOfRandomGraphs) {
  int joins = 0;
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
          Graph joined = graph;
          joined.setting.fuses = true;
          Program fused;
          ASSERT_NO_THROW(fused = derive(joined));
          for (const bool recomputes : {false, true})
            ASSERT_NO_THROW(Memory(fused, graph.outputs[0]).run(recomputes));
          expect_equal_calls(fused, program);
          joins += calls_of(program).size() > calls_of(fused).size();
        }
    if (HasFailure()) return;
  }
  EXPECT_GT(joins, 100);
}

// ---- place_check --------------------------------------------------------------------------------

/// A listing and its program, which tests break.
struct Both {
  Listing listing;
  Program program;

  explicit Both(const Graph& graph) : listing(in_order(graph)) {
    program = place(listing, find_phases(listing));
    listing.graph.values.resize(listing.graph.values.size() + 20, {"moved"});  // some are added
  }
  /// A call of the program: its phase, and its index there.
  struct At {
    std::vector<PlacedCall>* phase;
    std::size_t index;
    PlacedCall& placed() const { return (*phase)[index]; }
    auto iterator(std::size_t i) const { return phase->begin() + static_cast<std::ptrdiff_t>(i); }
  };
  std::vector<At> calls() {
    std::vector<At> all;
    for (auto* phases : {&program.forward, &program.backward})
      for (auto& phase : *phases)
        for (std::size_t i = 0; i < phase.size(); ++i) all.push_back({&phase, i});
    return all;
  }
  void erase(const std::string& name) {
    for (const At& at : calls())
      if (at.placed().call.name == name) {
        at.phase->erase(at.iterator(at.index));
        return;
      }
  }
  template <class Act>
  void for_each_place(const Act& act) {
    for (const At& at : calls()) {
      PlacedCall& one = at.placed();
      for (std::size_t i = 0; i < one.reads.size(); ++i) act(one.call.reads[i], one.reads[i]);
      for (std::size_t i = 0; i < one.writes.size(); ++i) act(one.call.writes[i], one.writes[i]);
      for (std::size_t i = 0; i < one.weights.size(); ++i)
        if (one.call.weights[i] < 0) act(~one.call.weights[i], one.weights[i]);
    }
  }
  /// Has the value lie elsewhere, wherever it is read or written.
  void shift(const std::string& name, const std::function<void(Place&)>& change) {
    for_each_place([&](int v, Place& place) {
      if (listing.value(v).name == name) change(place);
    });
  }
  std::map<int, Place> places() {
    std::map<int, Place> all;
    for_each_place([&](int v, Place& place) { all[v] = place; });
    return all;
  }
  /// What the check says; empty: nothing.
  std::string check() const {
    const auto checks = [&] {
      check_places(listing, program);
      check_gradients(program);
    };
    return testing::error_of<std::logic_error>(checks, "");
  }
  std::string run() {
    const auto runs = [&] {
      for (const bool recomputes : {false, true})
        Memory(program, listing.graph.outputs[0]).run(recomputes);
    };
    return testing::error_of<std::exception>(runs, "");
  }
  /// Breaks it, or not, in one way of several by chance; says how.
  std::string break_by_chance(std::mt19937& random) {
    const std::vector<At> all = calls();
    const At at = all[random() % all.size()];
    PlacedCall& placed = at.placed();
    const unsigned way = random() % 5;
    if (way == 0) {
      at.phase->erase(at.iterator(at.index));
      return "drops a call";
    }
    if (way == 1) {
      const std::size_t to = at.index + random() % (at.phase->size() - at.index);
      std::rotate(at.iterator(at.index), at.iterator(at.index + 1), at.iterator(to + 1));
      return "runs a call later";
    }
    if (way == 2) {
      placed.call.replaces.clear();
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
  const int n = s.norm(s.input(), "n"), a = s.value("a", Keep::never), kept = s.value("kept");
  Call split{"split", {n}, {a, kept}};
  Call backward{"d split", {kept, ~a}, {~n}};
  backward.can_add = true;
  s.g.operations.push_back({{split}, {backward}});
  const int b = s.attention({s.linear(n, "b"), a}, "c");
  Both both(s.with_output(s.linear(b, "y", Keep::always, s.input())));
  ASSERT_EQ(both.check(), "");
  EXPECT_EQ(both.run(), "");
  Place& spare = const_cast<Place&>(placed(both.program.forward, "split").writes[0]);
  ASSERT_EQ(spare.home, Home::send_buffer);
  ASSERT_GE(spare.spare, 0);
  spare.spare = placed(both.program.forward, "n").writes[0].offset;
  EXPECT_EQ(both.check(), "split overwrites n");
  spare.spare = 1 << 20;
  EXPECT_EQ(both.check(), "split reaches beyond the end of a buffer");
}

/// Adds a call at the end of a list that writes where its last call has.
void write_late(Both& both, std::vector<PlacedCall>& phase) {
  PlacedCall late;
  late.call = Call{"late", {}, {static_cast<int>(both.listing.graph.values.size()) - 1}};
  late.writes = phase.back().writes;
  phase.push_back(late);
}

TEST(CheckPlaces, NamesCallAndValue) {
  const std::string end = " reaches beyond the end of a buffer";
  struct Broken {
    std::function<void(Both&)> how;
    std::string message;
    bool drops_and_defers = false;
  };
  for (const Broken& one : std::vector<Broken>{
           {[](Both& b) { b.erase("m.up"); },
            "m.act reads before it is written, or after it is lost: m.up"},
           {[](Both& b) { b.erase("m.down"); }, "no call writes m.down"},
           {[](Both& b) { b.erase("d m.up.weight"); },
            "of the gradient of m.up 0 elements are computed, of 16"},
           {[](Both& b) {
              const Place other = b.places()[id(b.listing.graph, "a")];
              b.shift("m.norm.statistics", [&](Place& place) { place.offset = other.offset; });
            },
            "m.norm overwrites a"},
           {[](Both& b) {
              b.shift("d m.up", [](Place& place) { place.offset += 16; });
              b.program.saved_bytes += 16;
            },
            "d m.act overwrites m.up"},
           {[](Both& b) { write_late(b, b.program.forward.back()); }, "late overwrites m.down"},
           {[](Both& b) { write_late(b, b.program.backward.back()); }, "late overwrites d x"},
           {[](Both& b) { b.program.saved_bytes -= 4; }, end, true},
           {[](Both& b) { b.program.deferred_bytes -= 4; }, end, true},
           {[](Both& b) { b.program.output_bytes -= 4; }, end, true},
           {[](Both& b) {
              plan::Phases& all = b.program.backward_phases;
              std::max_element(all.begin(), all.end(), [](const auto& x, const auto& y) {
                return x.workspace_bytes < y.workspace_bytes;
              })->workspace_bytes -= 4;
            },
            end, true},
           {[](Both& b) { b.program.forward_phases[0].then->elements -= 2; }, end, true},
           {[](Both& b) {
              for (plan::Phase& phase : b.program.backward_phases) {
                phase.workspace_bytes = 1 << 20;
                phase.keeps_workspace = false;
              }
            },
            "or after it is lost", true}}) {
    Both both(Sketch(one.drops_and_defers ? setting(true, true, 2) : Setting()).block());
    ASSERT_EQ(both.check(), "");
    one.how(both);
    EXPECT_HAS(both.check(), one.message);
  }
}

}  // namespace
}  // namespace ostrakon::test
