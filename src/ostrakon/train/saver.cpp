// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/saver.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/checkpoint/shard_writer.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/mesh/named_agree.hpp>
#include <ostrakon/runtime/trace.hpp>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>

namespace ostrakon::train {

using checkpoint::Piece;
using checkpoint::Slice;

namespace {

constexpr std::size_t not_ours = static_cast<std::size_t>(-1);

/// Which of a rank's slices each of its pieces is.
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
      folder_(settings_.folder) {}

void Saver::prepare() {
  if (prepared_) return;
  mesh::agree_by_name(world_, [&] {
    const checkpoint::ShardMap map = trainer_.shard_map();
    file_ = checkpoint::lay_out(map, settings_.files, world_.rank());
    if (file_.writer != world_.rank()) file_.file_template.structure.clear();
    slices_ =
        match(file_.pieces, map.slices[static_cast<std::size_t>(world_.rank())], world_.rank());
    manifest_.program = text("Ostrakon ", version());
    manifest_.plan = trainer_.program(plan::Purpose::train).plan.hash();
    manifest_.ranks = world_.size();
    manifest_.deck = settings_.deck;
    manifest_.optimizer = settings_.optimizer;
    manifest_.parameters = map.parameters;
    manifest_.dtypes = map.dtypes;
    if (world_.rank() != 0) return;
    for (const checkpoint::Folder::Entry& entry : folder_.list())
      manifest_.sequence = std::max(manifest_.sequence, entry.sequence);
  });
  bytes_ = file_.writer == world_.rank() ? file_.bytes : 0;
  world_.sum(&bytes_, 1);
  prepared_ = true;
}

void Saver::begin(const checkpoint::Progress& progress, const std::string& tokenizer,
                  bool asynchronous, const std::string& huggingface_config) {
  if (is_saving()) finish();
  prepare();
  began_ = seconds_now();
  asynchronous_ = asynchronous && trainer_.has_staging();
  manifest_.progress = progress;
  manifest_.tokenizer = tokenizer;
  manifest_.huggingface_config = huggingface_config;
  ++manifest_.sequence;
  remark_.clear();
  worked_ = 0.0;
  urgent_ = !asynchronous_;
  if (asynchronous_) trainer_.stage();
  phase_ = Phase::opening;
  if (world_.rank() == 0) run([this] { open(); });
  stalled_ = seconds_now() - began_;
}

/// A job that fails does so when it is waited for.
void Saver::run(std::function<void()> job) {
  const auto timed = [this, job = std::move(job)] {
    const double began = seconds_now();
    job();
    worked_ += seconds_now() - began;
  };
  if (asynchronous_) {
    try {
      return background_.start(timed);
    } catch (const std::system_error&) {
      // The system gives no thread: this one does it.
    }
  }
  try {
    timed();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void Saver::wait() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  background_.wait();
}

/// On rank 0.
void Saver::open() {
  check_();
  partial_ = folder_.begin(manifest_.progress.step);
  const std::int64_t left = free_bytes(partial_);
  require(bytes_ <= left, folder_.path(), ": a checkpoint takes ", format_bytes(bytes_),
          "; the file system has ", format_bytes(left), " left");
}

void Saver::write() {
  const auto values = [&](std::size_t piece, std::int64_t first, std::int64_t bytes) {
    return trainer_.saved(slices_[piece], first, bytes, asynchronous_);
  };
  checkpoint::WriteOptions options;
  options.bytes_per_second = 1e6 * settings_.bandwidth;
  options.urgent = &urgent_;
  options.verify = settings_.verify;
  entry_ = checkpoint::write_shard(partial_, file_, world_.rank(), values, options);
}

/// On rank 0. What comes after the new checkpoint has its name can't make it fail.
void Saver::commit(const std::vector<std::string>& entries) {
  const std::int64_t step = manifest_.progress.step;
  check_();
  const checkpoint::Folder::Committed committed = folder_.commit(step, manifest_of(entries));
  path_ = committed.path;
  if (!committed.previous.empty())
    remark_ = text("an earlier checkpoint of step ", step, " is in ", committed.previous, " now");
  try {
    folder_.mark_latest(step);
    folder_.prune(settings_.keep, settings_.keep_every);
  } catch (const Error& error) {
    remark_ += (remark_.empty() ? "" : "; ") + std::string(error.what());
  }
}

std::optional<Saver::Saved> Saver::advance() {
  if (!is_saving()) return std::nullopt;
  const double began = seconds_now();
  try {
    mesh::agree_by_name(world_, [&] { wait(); });
  } catch (const AgreedError& error) {
    fail(error.what());
  }
  const Phase done = phase_;
  if (done == Phase::opening) {
    phase_ = Phase::writing;
    partial_ = world_.broadcast(partial_, 0);
    run([this] { write(); });
  } else if (done == Phase::writing) {
    phase_ = Phase::committing;
    const std::vector<std::string> entries = gather_entries();
    if (world_.rank() == 0) run([this, entries] { commit(entries); });
  } else {
    phase_ = Phase::none;
  }
  const double now = seconds_now();
  stalled_ += now - began;
  if (is_saving()) return std::nullopt;
  return Saved{path_, manifest_.progress.step, bytes_, now - began_, stalled_, worked_, remark_};
}

std::optional<Saver::Saved> Saver::finish() {
  urgent_ = true;
  std::optional<Saved> saved;
  while (is_saving()) saved = advance();
  return saved;
}

/// On rank 0, what each rank has written, as text: the job evaluates it.
std::vector<std::string> Saver::gather_entries() {
  std::vector<std::string> entries;
  world_.show_first(checkpoint::write_file_entry(entry_),
                    [&](int, const std::string& entry) { entries.push_back(entry); });
  return entries;
}

std::string Saver::manifest_of(const std::vector<std::string>& entries) const {
  std::map<std::string, checkpoint::FileEntry> files;
  for (const std::string& entry : entries) {
    checkpoint::FileEntry part = checkpoint::read_file_entry(entry);
    const auto known = files.find(part.name);
    if (known == files.end()) {
      // The lowest of a file's ranks comes first, and knows its structure.
      files.emplace(part.name, std::move(part));
    } else {
      std::vector<checkpoint::PieceEntry>& pieces = known->second.pieces;
      pieces.insert(pieces.end(), part.pieces.begin(), part.pieces.end());
    }
  }
  checkpoint::Manifest manifest = manifest_;
  for (auto& [name, file] : files) {
    std::sort(file.pieces.begin(), file.pieces.end(),
              [](const auto& a, const auto& b) { return a.offset < b.offset; });
    manifest.files.push_back(std::move(file));
  }
  return checkpoint::write_manifest(manifest);
}

/// All ranks have stopped writing.
void Saver::fail(const std::string& why) {
  phase_ = Phase::none;
  if (world_.rank() == 0) {
    try {
      check_();
      folder_.abandon(manifest_.progress.step);
    } catch (const Error&) {
      // The next run removes it, or one that has taken the folder saves there.
    }
  }
  throw AgreedError(why);
}

}  // namespace ostrakon::train
