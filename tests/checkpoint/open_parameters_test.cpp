// SPDX-License-Identifier: Apache-2.0
// The formats of weights are recognized by content.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/open_parameters.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/shard_writer.hpp>

#include "checkpoint/huggingface_files.hpp"
#include "support/messages.hpp"

namespace ostrakon::checkpoint {
namespace {

TEST(OpenParameters, TellsByContent) {
  const ScratchFolder folder;
  const ModelCase which = llama_case();
  write_weights(folder.file("weights.safetensors"), which);
  EXPECT_NE(dynamic_cast<WeightsReader*>(open_parameters(folder.file("weights.safetensors"),
                                                         which.settings, which.leaf.tokens)
                                             .get()),
            nullptr);
  write_tensors(folder.file("model.h5"), llama_tensors(which));
  EXPECT_NE(dynamic_cast<HuggingFaceSource*>(
                open_parameters(folder.file("model.h5"), which.settings, which.leaf.tokens).get()),
            nullptr);
  EXPECT_HAS(
      error_of([&] { open_parameters(folder.file("none"), which.settings, which.leaf.tokens); }),
      "does not exist");
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_HAS(
      error_of([&] { open_parameters(folder.file("pipe"), which.settings, which.leaf.tokens); }),
      "is not a plain file");
  for (const int more : {-1, 1}) {
    DecoderSettings other = which.settings;
    other.layers += more;
    EXPECT_HAS(error_of([&] {
                 open_parameters(folder.file("weights.safetensors"), other, which.leaf.tokens);
               }),
               more > 0 ? "is not in it" : "is no part of the model that the settings describe");
  }
}

/// Saves these parameters and first moments as a checkpoint of one rank.
std::string save_checkpoint(const std::string& folder, const ModelCase& which,
                            ParameterSource& source) {
  ShardMap map;
  map.nodes = {0};
  map.slices.resize(1);
  for (const model::Parameter& p : parameters_of(which.settings, which.leaf.tokens)) {
    for (const State state : {State::parameters, State::first_moment})
      map.slices[0].push_back({state, static_cast<int>(map.parameters.size()), 0, p.elements()});
    map.parameters.push_back({p.owner, p.name, p.shape, p.owner, false});
  }
  const FileLayout layout = lay_out(map, Files::single, 0);
  const Folder checkpoints(folder);
  const std::string partial = checkpoints.begin(1);
  Floats values;
  Manifest manifest;
  manifest.ranks = 1;
  manifest.parameters = map.parameters;
  manifest.dtypes = map.dtypes;
  manifest.files = {
      write_shard(partial, layout, 0,
                  [&](std::size_t piece, std::int64_t first, std::int64_t bytes) {
                    const ParameterEntry& p = map.parameters[layout.pieces[piece].slice.parameter];
                    values.resize(static_cast<std::size_t>(bytes / 4));
                    source.read(p.owner, p.name, p.shape, first / 4, bytes / 4, values.data());
                    return values.data();
                  },
                  {})};
  return checkpoints.commit(1, write_manifest(manifest)).path;
}

TEST(OpenParameters, TakesCheckpoints) {
  const ScratchFolder folder;
  for (const ModelCase& which : {gpt2_case(), llama_case()}) {
    write_weights(folder.file("weights.h5"), which);
    const auto weights =
        open_parameters(folder.file("weights.h5"), which.settings, which.leaf.tokens);
    const std::string path = save_checkpoint(folder.file("checkpoints"), which, *weights);
    const auto checkpoint = open_parameters(path, which.settings, which.leaf.tokens);
    checkpoint->verify();
    EXPECT_TRUE(checkpoint->checks_what_it_reads());
    EXPECT_FALSE(weights->checks_what_it_reads());
    for (const model::Parameter& p : parameters_of(which.settings, which.leaf.tokens))
      EXPECT_EQ(read_whole(*checkpoint, p), read_whole(*weights, p)) << p.full_name();

    const auto error = [&](const DecoderSettings& settings) {
      return error_of([&] { open_parameters(path, settings, which.leaf.tokens); });
    };
    DecoderSettings other = which.settings;
    ++other.layers;
    EXPECT_HAS(error(other), "the model's parameter block.");
    other = which.settings;
    --other.layers;
    EXPECT_HAS(error(other), "is no part of the model that the settings describe");
    other = which.settings;
    ++other.vocabulary;
    EXPECT_HAS(error(other), "embedding.token.weight has the shape");

    // Only damage of parameters is found, as only they are read.
    for (const State state : {State::first_moment, State::parameters}) {
      const Manifest manifest = CheckpointReader(path).manifest();
      const std::string file = path + "/" + manifest.files[0].name;
      std::string bytes = testing::read_bytes(file);
      for (const PieceEntry& piece : manifest.files[0].pieces)
        if (piece.slice.state == state) bytes[static_cast<std::size_t>(piece.offset)] += 1;
      testing::write_bytes(file, bytes);
      const auto damaged = open_parameters(path, which.settings, which.leaf.tokens);
      const std::string said = error_of([&] { damaged->verify(); });
      if (state == State::parameters) {
        EXPECT_HAS(said, file);
      } else {
        EXPECT_EQ(said, "no error");
      }
    }
  }
}

TEST(WeightsSource, SlicesAndChecksums) {
  const ScratchFolder folder;
  const std::string path = folder.file("weights.h5");
  const Shape shape = {5, 7, 3};
  Floats values(105);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.5f;
  WeightsWriter writer(path, "", 0, "byte");
  writer.write("a/b", "p", shape, values.data());
  writer.write("a", "q", {105}, values.data());
  writer.finish();
  WeightsReader reader(path);
  for (std::int64_t first = 0; first <= 105; ++first)
    for (std::int64_t count = 0; first + count <= 105; count += 1 + count / 8) {
      Floats part(static_cast<std::size_t>(count) + 1, -1.0f);
      reader.read("a/b", "p", shape, first, count, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end() - 1, values.begin() + first));
      EXPECT_EQ(part.back(), -1.0f);
    }
  EXPECT_HAS(error_of([&] { reader.read("a", "q", {105}, 100, 6, values.data()); }), "asked for");
  const auto entries = reader.parameters();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[1].unit + " " + entries[1].parameter, "a/b p");
  EXPECT_EQ(entries[1].shape, shape);
  reader.verify();

  std::string bytes = testing::read_bytes(path);
  const float number = 52.5f;
  const std::size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&number), 4));
  ASSERT_NE(at, std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  testing::write_bytes(path, bytes);
  WeightsReader damaged(path);
  EXPECT_HAS(error_of([&] { damaged.verify(); }), "is damaged: its checksum is");
}

}  // namespace
}  // namespace ostrakon::checkpoint
