// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/preflight/compute.hpp>

#include <algorithm>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hash.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/math/digest.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/gemm_facts.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/preflight/judge.hpp>
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/runtime/own_product_workspace.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/threads.hpp>
#include <type_traits>

namespace ostrakon::preflight {
namespace {

constexpr const char* slow_advice =
    "look for other processes on the host, its temperature, its power limit, and at the binding of "
    "ranks to cores";

// A host's products and copies are so small that some are done before the system lets another
// process run; a device's fill it. The copies together are much larger than caches, so that
// the rate is the memory's, whatever part of the caches other processes use.
#if OSTRAKON_HAS_DEVICE && !defined(OSTRAKON_FAKE_DEVICE)
constexpr std::int64_t side = 2048, products_at_once = 4;
constexpr std::int64_t copied_bytes = std::int64_t{256} << 20, copies = 2;
#else
constexpr std::int64_t side = 96, products_at_once = 16;
constexpr std::int64_t copied_bytes = std::int64_t{2} << 20, copies = 64;
#endif

std::string products_name(DType dtype) { return text(name(dtype), " products"); }
std::string steps_name(DType dtype) { return text(name(dtype), " steps"); }
constexpr const char* copy_name = "copies in memory";
constexpr const char* clock_name = "core clock";

/// Products of the same two matrices, again and again, and the digests of their results.
template <class T>
class Products {
 public:
  explicit Products(const Faults& faults)
      : faults_(faults), memory_(factor_bytes + products_at_once * result_bytes + digest_bytes) {
    math::fill_normal<T>(exec_, factors_.range(0, 2 * side * side), 1, 0, 1.0);
  }

  void measure(double seconds, std::int64_t least, Answer& answer) {
    const std::string title = products_name(std::is_same_v<T, float> ? DType::fp32 : DType::bf16);
    multiply();  // the library initializes itself
    const std::uint64_t right = digest(0, 1);
    std::int64_t done = 0, wrong = 0;
    double best = 0.0;
    const Stopwatch since;
    constexpr double longest = 5.0;  // of what is asked for
    while (since.seconds() < seconds || (done < least && since.seconds() < longest * seconds)) {
      const Stopwatch timer;
      const auto all = [this] { multiply(); };
      if (faults_.products)
        faults_.products(all, done, results_.matrix(products_at_once, side * side));
      else
        all();
      best = std::max(best, products_at_once * flops / timer.seconds());
      done += products_at_once;
      if (digest(0, products_at_once) == right * products_at_once) continue;
      for (std::int64_t i = 0; i < products_at_once; ++i) wrong += digest(i, i + 1) != right;
    }
    answer.rates[title] = best;
    const Facts kernel = math::gemm_facts(std::is_same_v<T, float> ? DType::fp32 : DType::bf16);
    std::string by;
    for (const Fact& fact : kernel) by += text(by.empty() ? "" : ", ", fact.name, " ", fact.value);
    answer.facts.push_back({title, digest_fact(format_hex(right), by)});
    if (wrong > 0)
      answer.facts.push_back(
          {wrong_name(title), text(format_count(wrong), " of ", format_count(done))});
  }

 private:
  static constexpr std::int64_t factor_bytes = 2 * side * side * std::int64_t{sizeof(T)};
  static constexpr std::int64_t result_bytes = side * side * std::int64_t{sizeof(float)};
  static constexpr std::int64_t digest_bytes = 8;
  static constexpr double flops = 2.0 * side * side * side;

  void multiply() {
    const auto factor = [&](std::int64_t i) {
      return factors_.range(i * side * side, (i + 1) * side * side).matrix(side, side);
    };
    for (std::int64_t i = 0; i < products_at_once; ++i)
      math::gemm<T, float>(exec_, math::Transpose::no, math::Transpose::yes, 1.0F, factor(0),
                           factor(1), 0.0F, result(i).matrix(side, side));
    exec_.fence();
  }

  View<float*> result(std::int64_t i) const {
    return results_.range(i * side * side, (i + 1) * side * side);
  }

  /// The sum, modulo 2^64, of the digests of some results.
  std::uint64_t digest(std::int64_t begin, std::int64_t end) {
    math::clear(exec_, digest_);
    for (std::int64_t i = begin; i < end; ++i) math::add_digest(exec_, result(i), 1, 0, digest_);
    std::uint64_t value = 0;
    math::copy_to_host(exec_, digest_, HostView<std::uint64_t*>(&value, 1));
    return value;
  }

  const Faults& faults_;
  const Exec exec_{};
  const runtime::OwnProductWorkspace workspace_;
  const runtime::Arena memory_;
  const View<T*> factors_{reinterpret_cast<T*>(memory_.data()), 2 * side* side};
  const View<float*> results_{reinterpret_cast<float*>(memory_.data() + factor_bytes),
                              products_at_once* side* side};
  const View<std::uint64_t*> digest_{
      reinterpret_cast<std::uint64_t*>(memory_.data() + factor_bytes +
                                       products_at_once * result_bytes),
      1};
};

Rate rate_of_products(DType dtype) {
  return {products_name(dtype), "GFLOP/s", 1e-9, 0.15, slow_advice};
}

constexpr DType dtypes[] = {DType::fp32, DType::bf16};

constexpr const char* model_deck = R"(
ostrakon:
  model: {width: 64, heads: 2, layers: 2, vocabulary: 257}
  data: {dataset: synthetic}
  training: {steps: 1000000, sequence_length: 32, micro_batch_size: 2, global_batch_size: 4}
  output: {directory: none}
  runtime: {streams: inline}
)";

/// Takes steps of a small model on this rank alone. They are short, as those of products are.
void take_steps(DType dtype, double seconds, Answer& answer) {
  const config::Settings settings =
      config::read_settings(model_deck, "deck of the preflight",
                            {config::parse_override(text("precision.gather=", name(dtype)))});
  mesh::Mesh alone(MPI_COMM_SELF);
  train::Trainer trainer = train::make_trainer(settings, alone);
  const auto samples =
      data::open_dataset(settings.data, data::Split::training, settings.training.sequence_length,
                         settings.model.vocabulary, 1, alone.world());
  trainer.allocate();
  trainer.initialize();
  double best = 0.0;
  std::int64_t step = 0;
  const auto take_step = [&] {
    const Stopwatch timer;
    trainer.step(*samples, ++step);
    best = std::max(best, 1.0 / timer.seconds());
  };
  constexpr int compared = 8;
  while (step < compared) take_step();
  const std::string digest = format_hex(trainer.state_digest());
  const Stopwatch since;
  while (since.seconds() < seconds) take_step();
  answer.rates[steps_name(dtype)] = best;
  Hasher kernels;
  for (const Fact& fact : train::kernel_facts(settings, math::kernel_threads()))
    if (fact.name.rfind("digest", 0) != 0) kernels.add(fact.name, fact.value);
  kernels.add(trainer.products().json);
  answer.facts.push_back({steps_name(dtype), digest_fact(digest, format_hex(kernels.value()))});
}

double copy_rate(double seconds) {
  const Exec exec;
  const runtime::Arena memory(2 * copies * copied_bytes);
  const auto floats = copied_bytes / std::int64_t{sizeof(float)};
  const View<float*> all(reinterpret_cast<float*>(memory.data()), 2 * copies * floats);
  math::fill(exec, all, 1.0F);
  exec.fence();
  double best = 0.0;
  const Stopwatch since;
  for (std::int64_t i = 0; since.seconds() < seconds; i = (i + 1) % copies) {
    const Stopwatch timer;
    math::copy<float>(exec, all.range(i * floats, (i + 1) * floats),
                      all.range((copies + i) * floats, (copies + i + 1) * floats));
    exec.fence();
    best = std::max(best, 2.0 * static_cast<double>(copied_bytes) / timer.seconds());
  }
  return best;
}

/// The rate of steps of a chain: a multiplication and an addition, which both wait for the one
/// before, so it is the clock of the core, divided by some cycles.
double chain_rate(double seconds) {
  constexpr int steps = 100000;
  double best = 0.0;
  std::uint64_t value = 1;
  const Stopwatch since;
  while (since.seconds() < seconds) {
    const Stopwatch timer;
    for (int i = 0; i < steps; ++i) value = value * 0x5851F42D4C957F2Du + 0x14057B7EF767814Fu;
    if (value == 0) break;  // which it never is, but the chain has to be computed
    best = std::max(best, steps / timer.seconds());
  }
  return best;
}

}  // namespace

Check products(double seconds, const Faults& faults, const simulate::Machine* machine) {
  Check check;
  check.name = "products";
  check.unit = "GFLOP/s";
  check.may_vary = true;
  // Measured again, it is for the rate alone.
  check.measure = [seconds, faults, least = least_products]() mutable {
    Answer answer;
    Products<float>(faults).measure(seconds, least, answer);
    Products<bf16>(faults).measure(seconds, least, answer);
    least = 0;
    return answer;
  };
  const double fp32 = machine != nullptr ? machine->fp32.products : 0.0;
  const double bits16 = machine != nullptr ? machine->bits16.products : 0.0;
  check.judge = [fp32, bits16](const Table& table) {
    Findings all;
    for (const DType dtype : dtypes) {
      append(all, judge_digest(table, "products", products_name(dtype)));
      append(all, judge_rate(table, "products", rate_of_products(dtype)));
      judge_by_machine(table, "products", rate_of_products(dtype),
                       dtype == DType::fp32 ? fp32 : bits16, all);
    }
    return all;
  };
  return check;
}

Check steps(double seconds) {
  Check check;
  check.name = "steps";
  check.unit = "steps/s";
  check.scale = 1.0;
  check.may_vary = true;
  check.measure = [seconds] {
    Answer answer;
    for (const DType dtype : dtypes) take_steps(dtype, seconds, answer);
    return answer;
  };
  check.judge = [](const Table& table) {
    Findings all;
    for (const DType dtype : dtypes) {
      append(all, judge_digest(table, "steps", steps_name(dtype)));
      append(all,
             judge_rate(table, "steps", {steps_name(dtype), "steps/s", 1.0, 0.4, slow_advice}));
    }
    return all;
  };
  return check;
}

Check memory(double seconds, const simulate::Machine* machine) {
  Check check;
  check.name = "memory";
  check.unit = "GB/s";
  check.may_vary = true;
  check.measure = [seconds] {
    Answer answer;
    answer.rates[copy_name] = copy_rate(seconds);
    return answer;
  };
  const double known = machine != nullptr ? machine->kernels.row_bytes_per_second : 0.0;
  check.judge = [known](const Table& table) {
    const Rate copying = {copy_name, "GB/s", 1e-9, 0.35, slow_advice};
    Findings all = judge_rate(table, "memory", copying);
    judge_by_machine(table, "memory", copying, known, all);
    return all;
  };
  return check;
}

Check clock(double seconds) {
  Check check;
  check.name = "clock";
  check.unit = "G steps/s";
  check.may_vary = true;
  check.measure = [seconds] {
    Answer answer;
    answer.rates[clock_name] = chain_rate(seconds);
    return answer;
  };
  check.judge = [](const Table& table) {
    return judge_rate(table, "clock", {clock_name, "G steps/s", 1e-9, 0.2, slow_advice});
  };
  return check;
}

}  // namespace ostrakon::preflight
