// SPDX-License-Identifier: Apache-2.0
// A small GPT, whose model is 20 lines, trained on the bytes of a text. docs/own-models.md explains
// it.
//
//     cmake -S . -B build -D CMAKE_PREFIX_PATH=<where Ostrakon is installed> && cmake --build build
//     mpiexec -n 4 build/gpt some.txt 200
//     mpiexec -n 4 build/gpt some.txt 200 2          # two ranks compute each leaf together
// The digest is the same on 1, 2, 4 and 8 ranks, with as many threads.

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <ostrakon/training.hpp>
#include <string>

namespace {

using ostrakon::Builder, ostrakon::Value;

constexpr std::int64_t words = 256, tokens = 64, width = 64, heads = 4, layers = 4;

// 1. The model: GPT-2 (Radford et al. 2019), with 256 words, which are bytes.
ostrakon::Chain<float> make_gpt(std::int64_t samples, std::int64_t tensor_ranks) {
  const double deviation = 0.02, out = deviation / std::sqrt(2.0 * layers);
  ostrakon::Units<float> units;
  units.add("embedding", [=](Builder<float>& b) { return b.embedding(words, width, tokens); });
  for (int i = 0; i < layers; ++i)
    units.add("block." + std::to_string(i), [=](Builder<float>& b, Value x) {
      const Value a = b.attention(b.norm(x, "attention.norm"), "attention", {heads});
      const Value middle = b.linear_onto(x, a, "attention.out", {out});
      const Value up = b.linear(b.norm(middle, "mlp.norm"), "mlp.up", 4 * width);
      return b.linear_onto(middle, b.gelu(up), "mlp.down", {out});
    });
  units.add("head", [=](Builder<float>& b, Value x) {
    return b.tied_cross_entropy(b.norm(x, "norm"), "embedding");
  });
  const std::int64_t sample_bytes = 2 * tokens * sizeof(std::int32_t), pieces = 2;
  return {std::move(units), {samples, sample_bytes, tokens, tensor_ranks, pieces}};
}

// 2. Samples: tokens that begin anywhere in the text, and behind those of all samples the targets,
// which are one byte further on.
class Text final : public ostrakon::SampleSource {
 public:
  explicit Text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    text_.assign(std::istreambuf_iterator<char>(file), {});
    if (text_.size() <= tokens) throw ostrakon::Error(path + ": no text of over 64 bytes");
  }
  std::int64_t sample_bytes() const override { return 2 * tokens * sizeof(std::int32_t); }
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    auto* const all = static_cast<std::int32_t*>(batch);
    for (std::int64_t s = 0; s < count; ++s) {
      const std::uint64_t number = (first + static_cast<std::uint64_t>(s)) * 0x9e3779b97f4a7c15u;
      const std::size_t begin = (number >> 32) % (text_.size() - tokens);
      for (std::int64_t i = 0; i < tokens; ++i) {
        const auto at = begin + static_cast<std::size_t>(i);
        all[s * tokens + i] = static_cast<unsigned char>(text_[at]);
        all[(count + s) * tokens + i] = static_cast<unsigned char>(text_[at + 1]);
      }
    }
  }

 private:
  std::string text_;
};

const char* const usage = "usage: gpt TEXT STEPS [TENSOR_RANKS]\n";

// 3. Training.
int run(const ostrakon::Arguments& arguments) {
  if (arguments.size() < 2 || arguments.size() > 3) throw ostrakon::CollectiveError(usage);
  const auto number = [](const std::string& text) {
    return std::strtoll(text.c_str(), nullptr, 10);
  };
  ostrakon::Mesh mesh(MPI_COMM_WORLD);
  const bool is_root = mesh.world().rank() == 0;
  std::unique_ptr<Text> text;  // each rank reads it: one message where some can't
  mesh.world().run_collectively([&] { text = std::make_unique<Text>(arguments[0]); });
  ostrakon::TrainerSettings settings;
  settings.steps = number(arguments[1]);
  settings.global_batch_size = 16;
  settings.micro_batch_size = 2;
  settings.optimizer.learning_rate = 2e-3;
  settings.policy.sharding = ostrakon::Sharding::full;
  ostrakon::set_matrix_threads(mesh.world());
  const std::int64_t tensor_ranks = arguments.size() > 2 ? number(arguments[2]) : 1;
  ostrakon::Trainer trainer(ostrakon::make_model(make_gpt(settings.micro_batch_size, tensor_ranks)),
                            settings, mesh);
  trainer.require_memory();
  trainer.allocate();
  trainer.initialize();
  for (std::int64_t step = 1; step <= settings.steps; ++step) {
    const double loss = trainer.step(*text, step).loss;
    if (is_root && (step % 20 == 0 || step == settings.steps))
      std::cout << "step " << step << ", loss " << loss << std::endl;
  }
  const auto digest = trainer.state_digest();
  if (is_root) std::cout << "digest " << std::hex << digest << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return ostrakon::run_program("gpt", usage, argc, argv, run); }
