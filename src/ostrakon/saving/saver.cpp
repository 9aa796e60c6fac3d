// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/saving/saver.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/checkpoint/shard_writer.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/watch/progress.hpp>
#include <tuple>
#include <utility>

namespace ostrakon::train {

using checkpoint::Piece;
using checkpoint::Slice;

namespace {

/// The seconds in which a rank writes that many bytes, at a rate that slow disks have, or at the
/// limit in MB/s that the user has set; 0: none.
double expected_seconds(std::int64_t bytes, double limit) {
  constexpr double slow = 10e6;  // bytes per second
  const double rate = limit > 0.0 ? std::min(slow, 1e6 * limit) : slow;
  return static_cast<double>(bytes) / rate;
}

constexpr std::size_t not_ours = static_cast<std::size_t>(-1);

/// Returns, for each of a rank's pieces, its index in `slices`.
std::vector<std::size_t> match(const std::vector<Piece>& pieces, const std::vector<Slice>& slices,
                               int rank) {
  const auto key = [](const Slice& slice) {
    return std::make_tuple(slice.state, slice.parameter, slice.first);
  };
  std::map<decltype(key(Slice())), std::size_t> places;
  for (std::size_t i = 0; i < slices.size(); ++i) places.emplace(key(slices[i]), i);
  std::vector<std::size_t> found;
  for (const Piece& piece : pieces)
    found.push_back(piece.rank == rank ? places.at(key(piece.slice)) : not_ours);
  return found;
}

}  // namespace

SaverSettings saver_settings(const config::Settings& settings) {
  const config::CheckpointSettings& own = settings.checkpoint;
  SaverSettings result;
  result.folder = (std::filesystem::path(settings.output.directory) / "checkpoints").string();
  result.keep = own.keep;
  result.keep_every = own.keep_every;
  result.files = own.files;
  result.verify = own.verify;
  result.bandwidth = own.bandwidth;
  result.deck = config::write_deck(config::with_absolute_paths(settings));
  result.optimizer = config::value_of(settings, "optimizer", "name");
  return result;
}

Saver::Saver(SaverSettings settings, mesh::Mesh& mesh, Trainer& trainer)
    : settings_(std::move(settings)),
      world_(mesh.world()),
      trainer_(trainer),
      folder_(settings_.folder, settings_.keep, settings_.keep_every) {}

void Saver::prepare() {
  if (prepared_) return;
  mesh::run_collectively_by_name(world_, [&] {
    const checkpoint::ShardMap map = trainer_.shard_map();
    part_.file = checkpoint::lay_out(map, settings_.files, world_.rank());
    if (part_.file.writer != world_.rank()) part_.file.file_template.structure.clear();
    part_.slices = match(part_.file.pieces, map.slices[static_cast<std::size_t>(world_.rank())],
                         world_.rank());
    manifest_.program = text("Ostrakon ", version());
    manifest_.plan = trainer_.program(plan::Purpose::train).plan.hash();
    manifest_.ranks = world_.size();
    manifest_.deck = settings_.deck;
    manifest_.optimizer = settings_.optimizer;
    manifest_.parameters = map.parameters;
    manifest_.dtypes = map.dtypes;
    if (world_.rank() != 0) return;
    manifest_.sequence = std::max(manifest_.sequence, folder_.last_sequence());
  });
  bytes_ = part_.file.writer == world_.rank() ? part_.file.bytes : 0;
  world_.all_reduce_sum(&bytes_, 1);
  prepared_ = true;
}

void Saver::begin(const checkpoint::Progress& progress, const std::string& tokenizer,
                  bool asynchronous, const std::string& huggingface_config) {
  if (is_saving()) finish();
  prepare();
  current_ = Current();
  current_.began = seconds_now();
  worker_.begin(asynchronous && trainer_.has_staging());
  manifest_.progress = progress;
  manifest_.tokenizer = tokenizer;
  manifest_.huggingface_config = huggingface_config;
  ++manifest_.sequence;
  urgent_ = !worker_.is_asynchronous();
  if (worker_.is_asynchronous()) trainer_.stage();
  current_.phase = Phase::opening;
  if (world_.rank() == 0)
    worker_.run([this] {
      const watch::OccupationScope doing(watch::Occupation::saving);
      current_.partial = folder_.begin(manifest_.progress.step, bytes_);
    });
  current_.stalled = seconds_now() - current_.began;
}

void Saver::write() {
  const watch::OccupationScope doing(watch::Occupation::writing_checkpoint,
                                     expected_seconds(part_.file.bytes, settings_.bandwidth));
  if (watch::Progress* const progress = watch::progress())
    progress->inject_checkpoint_fault(manifest_.progress.step);
  const auto values = [&](std::size_t piece, std::int64_t first, std::int64_t bytes) {
    return trainer_.saved(part_.slices[piece], first, bytes, worker_.is_asynchronous());
  };
  checkpoint::WriteOptions options;
  options.bytes_per_second = 1e6 * settings_.bandwidth;
  options.urgent = &urgent_;
  options.verify = settings_.verify;
  current_.entry =
      checkpoint::write_shard(current_.partial, part_.file, world_.rank(), values, options);
}

std::optional<Saver::Saved> Saver::advance() {
  if (!is_saving()) return std::nullopt;
  const double began = seconds_now();
  try {
    mesh::run_collectively_by_name(world_, [&] { worker_.wait(); });
  } catch (const CollectiveError& error) {
    fail(error.what());
  }
  const Phase done = current_.phase;
  if (done == Phase::opening) {
    current_.phase = Phase::writing;
    current_.partial = world_.broadcast(current_.partial, 0);
    worker_.run([this] { write(); });
  } else if (done == Phase::writing) {
    current_.phase = Phase::committing;
    const std::vector<std::string> entries = gather_entries();
    if (world_.rank() == 0)
      worker_.run([this, entries] {
        const watch::OccupationScope doing(watch::Occupation::saving);
        current_.committed = folder_.commit(manifest_, entries);
      });
  } else {
    current_.phase = Phase::none;
  }
  const double now = seconds_now();
  current_.stalled += now - began;
  if (is_saving()) return std::nullopt;
  return Saved{current_.committed.path,  manifest_.progress.step, bytes_,
               now - current_.began,     current_.stalled,        worker_.seconds(),
               current_.committed.remark};
}

std::optional<Saver::Saved> Saver::finish() {
  urgent_ = true;
  std::optional<Saved> saved;
  while (is_saving()) saved = advance();
  return saved;
}

/// Returns, on rank 0, the entries of files that ranks have written, as text: the job parses it.
std::vector<std::string> Saver::gather_entries() {
  std::vector<std::string> entries;
  world_.gather_texts_on_root(checkpoint::write_file_entry(current_.entry),
                              [&](int, const std::string& entry) { entries.push_back(entry); });
  return entries;
}

/// Handles a failed save, once all ranks have stopped writing.
void Saver::fail(const std::string& why) {
  current_.phase = Phase::none;
  if (world_.rank() == 0) folder_.abandon(manifest_.progress.step);
  throw CollectiveError(why);
}

}  // namespace ostrakon::train
