// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs a decoder's units with buffers of exactly the size that their descriptions name.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/model/typed_buffers.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "model/model_cases.hpp"
#include "support/device_array.hpp"

namespace ostrakon::test {

/// The bytes of an array: NaN equals NaN here, and 0 is not -0.
template <class T>
std::vector<unsigned char> bits(const std::vector<T>& values) {
  std::vector<unsigned char> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// |found - expected| / |expected|, in the Euclidean norm.
template <class A, class B>
double relative_distance(const std::vector<A>& found, const std::vector<B>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    difference += std::pow(static_cast<double>(found[i]) - static_cast<double>(expected[i]), 2);
    size += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(difference / size);
}

/// A DeviceArray between guards: holds NaN until it is written.
template <class T>
class GuardedArray {
 public:
  explicit GuardedArray(std::int64_t count)
      : count_(count), all_(count + 2 * guard, guard_value()) {
    assign_unwritten();
  }
  static GuardedArray of_bytes(std::int64_t bytes) { return GuardedArray(bytes / sizeof(T)); }

  View<T*> view() const { return all_.view().range(guard, all_.size() - guard); }
  /// Null without elements: then a call must not use it.
  View<T*> view_or_none() const { return size() == 0 ? View<T*>() : view(); }
  View<std::byte*> bytes() const { return view_as<std::byte>(view()); }
  operator View<T*>() const { return view(); }
  operator View<const T*>() const { return view(); }
  std::int64_t size() const { return count_; }

  std::vector<T> values() const {
    const std::vector<T> all = all_.host();
    return {all.begin() + guard, all.end() - guard};
  }
  void assign(const std::vector<T>& values) {
    std::vector<T> all = all_.host();
    std::copy(values.begin(), values.end(), all.begin() + guard);
    all_.assign(all);
  }
  void assign_unwritten() { assign(std::vector<T>(count_, unwritten())); }

  bool guards_intact() const {
    const std::vector<T> all = all_.host();
    for (std::int64_t i = 0; i < guard; ++i)
      if (all[i] != guard_value() || all[all.size() - 1 - i] != guard_value()) return false;
    return true;
  }

 private:
  static constexpr std::int64_t guard = 64;
  static T guard_value() { return T(-12345); }
  static T unwritten() {
    if constexpr (std::is_integral<T>::value)
      return T(0);
    else
      return T(std::numeric_limits<compute_t<T>>::quiet_NaN());
  }

  std::int64_t count_;
  DeviceArray<T> all_;
};

/// body(its first element in a flat array, its first element in the whole parameter, elements) for
/// each run of neighbours in the pieces of a parameter.
template <class Body>
void for_each_run_of(const model::Parameter& parameter, const Body& body) {
  for (std::int64_t piece = 0; piece < parameter.pieces; ++piece) {
    std::int64_t at = parameter.offset + piece * parameter.piece_stride;
    for (const model::ElementRuns& runs : parameter.elements_of_piece(piece))
      runs.for_each([&](std::int64_t first, std::int64_t count) {
        body(at, first, count);
        at += count;
      });
  }
}

/// The values of one parameter in a flat array.
template <class A>
std::vector<A> part(const std::vector<A>& flat, const model::Parameter& parameter) {
  std::vector<A> values(static_cast<std::size_t>(parameter.elements()));
  for_each_run_of(parameter, [&](std::int64_t at, std::int64_t first, std::int64_t count) {
    std::copy_n(flat.begin() + at, count, values.begin() + first);
  });
  return values;
}

/// A decoder with all its buffers, of which one rank has all pieces. Parameters are random, norms
/// and biases too, and the same whichever are frozen.
template <class T>
class ModelRun {
 public:
  using Compute = compute_t<T>;

  explicit ModelRun(const ModelCase& which, model::Recompute recompute = {},
                    const model::Frozen& frozen_names = {})
      : decoder(which.settings, which.leaf, recompute, frozen_names),
        description(decoder.description()),
        gradient(description.gradient_bytes / static_cast<std::int64_t>(sizeof(T))),
        references(static_cast<std::size_t>(which.leaf.has_pairs() ? 2 * which.leaf.batch : 0)),
        batch_(which.leaf.batch_elements()),
        generator_(1) {
    for (const plan::UnitDescription& unit : description.units) {
      parameters.emplace_back(unit.trained_elements());
      frozen.emplace_back(unit.frozen_elements);
      gradients.emplace_back(unit.trained_elements());
      outputs.push_back(GuardedArray<T>::of_bytes(unit.output_bytes));
      saved.push_back(GuardedArray<T>::of_bytes(unit.saved_bytes));
      deferred.push_back(GuardedArray<T>::of_bytes(unit.deferral.bytes));
    }
    for (int u = 0; u < units(); ++u) initialize(u);
    std::uniform_int_distribution<std::int32_t> id(
        0, static_cast<std::int32_t>(which.settings.vocabulary) - 1);
    token_ids.resize(static_cast<std::size_t>(rows()));
    target_ids.resize(token_ids.size());
    for (auto& value : token_ids) value = id(generator_);
    for (auto& value : target_ids) value = id(generator_);
    set_batch(token_ids, target_ids);
  }

  int units() const { return decoder.units(); }
  int head() const { return decoder.units() - 1; }
  std::int64_t rows() const { return decoder.leaf().rows(); }
  bool has_documents() const { return decoder.leaf().has_documents; }
  /// `document_begins`: where the leaf has documents; at first each sequence is one.
  void set_batch(std::vector<std::int32_t> tokens, const std::vector<std::int32_t>& targets,
                 std::vector<std::int32_t> document_begins = {}) {
    tokens.insert(tokens.end(), targets.begin(), targets.end());
    if (has_documents()) document_begins.resize(static_cast<std::size_t>(rows()));
    tokens.insert(tokens.end(), document_begins.begin(), document_begins.end());
    const std::size_t before = tokens.size();
    tokens.resize(before + references.size());
    std::memcpy(tokens.data() + before, references.data(), references.size() * sizeof(float));
    batch_.assign(tokens);
  }
  std::vector<std::int32_t> document_begins() const {
    const std::vector<std::int32_t> all = batch_.values();
    return {all.begin() + 2 * rows(), all.begin() + 3 * rows()};
  }

  model::UnitBuffers<T> buffers(int u) const {
    model::UnitBuffers<T> b;
    b.batch = batch_.bytes();
    if (u == 0) b.tokens = batch_.view().range(0, rows());
    if (u == head() || tied_apart(u)) b.targets = batch_.view().range(rows(), 2 * rows());
    if (has_documents()) b.document_begins = batch_.view().range(2 * rows(), 3 * rows());
    b.parameters = parameters[u].view_or_none();
    b.frozen = frozen[u].view_or_none();
    if (u > 0) b.input = outputs[u - 1];
    b.output = outputs[u];
    b.saved = saved[u].bytes();
    if (const int tied_to = description.units[u].tied_to; tied_to >= 0) {
      b.tied_parameters = parameters[tied_to].view_or_none();
      b.tied_frozen = frozen[tied_to].view_or_none();
    }
    return b;
  }

  void forward(int u, const model::DecodedRuns& decoded) {
    model::UnitBuffers<T> b = buffers(u);
    b.decoded = &decoded;
    forward(u, b);
  }
  /// All rows; of a single sequence, where it is decoded.
  void forward(int u) {
    if (decoder.leaf().decodes())
      forward(u, {{0, 0, rows()}});
    else
      forward(u, buffers(u));
  }
  void forward() {
    for (int u = 0; u < units(); ++u) forward(u);
  }

  /// Whether backward of a unit that is tied to this one writes its gradients first.
  bool opened(int u) const {
    const plan::UnitDescription& last = description.units[head()];
    return last.tied_to == u && last.tied_gradients;
  }
  /// Whether a unit before the head is tied to another one: its gradients are added behind.
  bool tied_apart(int u) const { return u < head() && description.units[u].tied_to >= 0; }

  /// The first unit that has anything to train; the number of units where none has.
  int first_trained() const {
    int u = 0;
    while (u < units() && gradients[u].size() == 0) ++u;
    return u;
  }

  /// Runs one unit backward, but what it defers. A tied head opens the embedding's gradients.
  void backward(int u, Compute loss_scale, bool adds_gradients) {
    const plan::UnitDescription& unit = description.units[u];
    deferred[u].assign_unwritten();
    model::UnitBuffers<T> b = buffers(u);
    if (!unit.backward_reads_parameters) b.parameters = b.frozen = {};
    b.gradient = gradient;
    if (unit.deferral.phases == 0) b.parameter_gradients = gradients[u].view_or_none();
    if (unit.tied_to >= 0 && opened(unit.tied_to)) b.tied_gradients = gradients[unit.tied_to];
    if (!unit.backward_reads_tied) b.tied_parameters = b.tied_frozen = {};
    if (tied_apart(u) && unit.tied_gradients) {
      EXPECT_TRUE(unit.sums_tied_apart);
      apart = std::make_unique<GuardedArray<Compute>>(gradients[unit.tied_to].size());
      b.tied_gradients = *apart;
    }
    backward(u, 0, unit.backward.size() - unit.deferral.phases, b, loss_scale, adds_gradients);
  }
  /// Runs what it has deferred, with nothing that a plan does not give it then.
  void backward_deferred(int u) {
    model::UnitBuffers<T> b = buffers(u);
    b.parameters = b.frozen = b.tied_parameters = b.tied_frozen = {};
    b.output = {};
    b.parameter_gradients = gradients[u].view_or_none();
    const std::size_t end = description.units[u].backward.size();
    backward(u, end - description.units[u].deferral.phases, end, b, Compute(1), false);
  }
  /// Down to the first unit that has anything to train; then what all of them have deferred, the
  /// first unit first. `recomputes`: what units have saved is written again before.
  void backward(Compute loss_scale, bool recomputes = false) {
    for (int u = head(); u >= first_trained(); --u) {
      if (recomputes) recompute(u);
      backward(u, loss_scale, opened(u));
    }
    for (int u = first_trained(); u < units(); ++u) backward_deferred(u);
    for (int u = first_trained(); u < head(); ++u)
      if (tied_apart(u) && description.units[u].tied_gradients)
        add_apart(description.units[u].tied_to);
  }

  /// Forgets what the unit saved, and lets forward write it again without an output.
  void recompute(int u) {
    saved[u].assign_unwritten();
    model::UnitBuffers<T> b = buffers(u);
    b.output = {};
    b.recomputes = true;
    forward(u, b);
  }

  /// The head's output: losses, or where sequences are decoded the logits of the last row of each
  /// run.
  std::vector<Compute> head_output() const {
    const std::vector<T> output = outputs[head()].values();
    std::vector<Compute> values(output.size() * sizeof(T) / sizeof(Compute));
    std::memcpy(values.data(), output.data(), values.size() * sizeof(Compute));
    return values;
  }
  std::vector<Compute> losses() const {
    const std::vector<Compute> values = head_output();
    EXPECT_EQ(static_cast<std::int64_t>(values.size()),
              rows() * (1 + decoder.settings().multi_token_depth));
    return {values.begin(), values.begin() + rows()};
  }
  /// Those of a module's predictions.
  std::vector<Compute> further_losses() const {
    const std::vector<Compute> values = head_output();
    return {values.begin() + rows(), values.end()};
  }
  /// The sum of which gradients are.
  double loss_sum() const {
    const model::DecoderSettings& s = decoder.settings();
    const std::int64_t tokens = decoder.leaf().tokens;
    double sum = 0.0;
    for (const Compute loss : losses()) sum += static_cast<double>(loss);
    for (const Compute loss : further_losses())
      sum += s.multi_token_factor * static_cast<double>(loss) * static_cast<double>(tokens) /
             static_cast<double>(tokens - 1);
    return sum;
  }

  /// The segment that holds a parameter of unit u.
  GuardedArray<T>& segment(int u, const model::Parameter& parameter) {
    return parameter.frozen ? frozen[u] : parameters[u];
  }

  /// act(unit, parameter) for each of the model.
  template <class Act>
  void for_each_parameter(const Act& act) const {
    for (int u = 0; u < units(); ++u)
      for (const model::Parameter& parameter : decoder.unit(u).parameters()) act(u, parameter);
  }

  void expect_guards_intact() const {
    const auto expect = [&](const auto& arrays, const char* name) {
      for (int u = 0; u < units(); ++u)
        EXPECT_TRUE(arrays[u].guards_intact()) << name << " of unit " << u;
    };
    expect(parameters, "parameters");
    expect(frozen, "frozen parameters");
    expect(gradients, "gradients");
    expect(outputs, "output");
    expect(saved, "saved");
    expect(deferred, "deferred");
    EXPECT_TRUE(gradient.guards_intact());
  }

  std::vector<T> random(std::int64_t count, double deviation = 1.0) {
    std::normal_distribution<double> normal(0.0, deviation);
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(normal(generator_));
    return values;
  }

  Exec exec;
  model::Decoder<T> decoder;
  plan::ModelDescription description;
  /// Where it is set units are called by way of it.
  std::unique_ptr<const model::Model> untyped = {};
  std::vector<GuardedArray<T>> parameters, frozen;  ///< the two segments of each unit
  std::vector<GuardedArray<T>> outputs, saved, deferred;
  std::vector<GuardedArray<Compute>> gradients;
  std::vector<std::int32_t> token_ids, target_ids;
  GuardedArray<T> gradient;
  std::vector<float> references;  ///< of pairs of answers, which set_batch puts behind all else
  std::unique_ptr<GuardedArray<Compute>> apart;  ///< gradients that a unit before the head has
                                                 ///< of the unit that it is tied to

 private:
  void add_apart(int u) {
    std::vector<Compute> sums = gradients[u].values();
    const std::vector<Compute> more = apart->values();
    EXPECT_TRUE(apart->guards_intact());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
    gradients[u].assign(sums);
  }
  template <class Act>
  static void call_untyped(const model::UnitBuffers<T>& b, const Act& act) {
    if constexpr (std::is_same<Compute, float>::value) act(model::typed<void>(b));
  }
  /// Runs phases [begin, end) with workspaces of their size; the one rank exchanges with itself.
  template <class Call>
  void run(const plan::Phases& phases, std::size_t begin, std::size_t end, model::UnitBuffers<T> b,
           const Call& call) {
    std::vector<GuardedArray<std::byte>> handed;
    GuardedArray<std::byte> workspace(0);
    const auto came = [&](const plan::Phase& phase, std::size_t which) {
      return which < phase.reads.size()
                 ? handed[static_cast<std::size_t>(phase.reads[which]) - begin].view()
                 : View<std::byte*>();
    };
    for (std::size_t p = begin; p < end; ++p) {
      if (p == begin || !phases[p - 1].keeps_workspace)
        workspace = GuardedArray<std::byte>(plan::workspace_bytes(phases, static_cast<int>(p)));
      handed.emplace_back(phases[p].then ? phases[p].then->bytes_in() : 0);
      b.phase = static_cast<int>(p);
      b.workspace = workspace;
      b.recv_buffer = came(phases[p], 0);
      b.second_recv_buffer = came(phases[p], 1);
      b.send_buffer = handed.back().view_or_none();
      call(b);
      exec.fence();
      EXPECT_TRUE(workspace.guards_intact() && handed.back().guards_intact()) << "phase " << p;
    }
  }
  void forward(int u, const model::UnitBuffers<T>& given) {
    const plan::Phases& phases = description.units[u].forward;
    run(phases, 0, phases.size(), given, [&](const model::UnitBuffers<T>& b) {
      if (untyped)
        call_untyped(b, [&](const auto& bytes) { untyped->forward(u, exec, bytes); });
      else
        decoder.unit(u).forward(exec, b);
    });
  }
  void backward(int u, std::size_t begin, std::size_t end, model::UnitBuffers<T> given,
                Compute loss_scale, bool adds_gradients) {
    if (description.units[u].deferral.bytes > 0) given.deferred = deferred[u].bytes();
    run(description.units[u].backward, begin, end, given, [&](const model::UnitBuffers<T>& b) {
      if (untyped)
        call_untyped(b, [&](const auto& bytes) {
          untyped->backward(u, exec, bytes, static_cast<float>(loss_scale), adds_gradients);
        });
      else
        decoder.unit(u).backward(exec, b, loss_scale, adds_gradients);
    });
  }

  void initialize(int u) {
    for (const model::Parameter& parameter : decoder.unit(u).parameters()) {
      const bool normal = parameter.initializer == model::Initializer::normal;
      const double mean = parameter.initializer == model::Initializer::ones ? 1.0 : 0.0;
      const auto values = random(parameter.elements(), normal ? parameter.deviation : 0.2);
      std::vector<T> flat = segment(u, parameter).values();
      for (std::int64_t piece = 0; parameter.pieces > 1 && piece < parameter.pieces; ++piece)
        std::fill_n(flat.begin() + parameter.offset + piece * parameter.piece_stride,
                    parameter.piece_elements(), T(0));  // words that pad it, too
      for_each_run_of(parameter, [&](std::int64_t at, std::int64_t first, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i)
          flat[at + i] = static_cast<T>(values[first + i] + static_cast<T>(mean));
      });
      segment(u, parameter).assign(flat);
    }
  }

  GuardedArray<std::int32_t> batch_;
  std::mt19937 generator_;
};

/// What each unit outputs for the tokens of `whole`, decoded: a prompt of 4, then token by token.
/// The head's, logits, are those of the last row of each call.
template <class T>
std::vector<std::vector<T>> decoded_outputs(ModelCase which, const ModelRun<T>& whole,
                                            const model::Frozen& frozen = {}) {
  constexpr std::int64_t at_once = 4;
  which.leaf.decoded_rows = at_once;
  ModelRun<T> run(which, {}, frozen);
  std::vector<std::vector<T>> outputs(run.outputs.size());
  for (std::int64_t begin = 0, end = at_once; begin < whole.rows(); begin = end++) {
    const auto some = [&](const std::vector<std::int32_t>& ids) {
      std::vector<std::int32_t> values(at_once);
      std::copy(ids.begin() + begin, ids.begin() + end, values.begin());
      return values;
    };
    run.set_batch(some(whole.token_ids), some(whole.target_ids));
    for (int u = 0; u < run.units(); ++u) {
      run.forward(u, {{0, begin, end - begin}});
      const std::vector<T> values = run.outputs[u].values();
      const auto rows = u == run.head() ? 1 : at_once;
      const auto count = static_cast<std::ptrdiff_t>(values.size()) / rows *
                         std::min<std::ptrdiff_t>(rows, end - begin);
      outputs[u].insert(outputs[u].end(), values.begin(), values.begin() + count);
    }
  }
  run.expect_guards_intact();
  return outputs;
}

}  // namespace ostrakon::test
