// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/preflight/places.hpp>

#include <link.h>
#include <mpi.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hash.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/comm/nccl.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/math/products/gemm_facts.hpp>
#include <ostrakon/preflight/judge.hpp>
#include <ostrakon/preflight/system_file.hpp>

namespace ostrakon::preflight {
namespace {

namespace fs = std::filesystem;

constexpr const char* time_name = "time of day";
constexpr const char* write_name = "writes to disk";
constexpr const char* sees_name = "sees what rank 0 writes";
constexpr const char* disk_name = "reads back what it wrote";
constexpr const char* yes = "yes";

/// "model name : ..." of the first processor.
std::string processor() {
  TextReader lines(system_file("/proc/cpuinfo"));
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("model name", 0) == 0) {
      const std::size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  return "";
}

std::string mpi_version() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  const std::string all = version;
  return all.substr(0, all.find('\n'));
}

/// A variable of the environment that ranks have in common, or "not set".
Fact variable(const char* name) {
  const char* const value = std::getenv(name);
  return {text("variable ", name), value == nullptr ? "not set" : value};
}

std::string identity_of(const std::string& path) {
  std::error_code failed;
  const auto bytes = fs::file_size(path, failed);
  if (failed) return "can't be read: " + failed.message();
  constexpr std::uintmax_t most_hashed = 1 << 20;
  if (bytes > most_hashed) return text(bytes, " bytes");
  Hasher hasher;
  hasher.add(system_file(path));
  return text(bytes, " bytes, hash ", format_hex(hasher.value()));
}

Facts stated(const std::vector<std::string>& files) {
  Facts facts = {{"version of Ostrakon", version()},
                 {"build", build()},
                 {"MPI", mpi_version()},
                 {"Kokkos", text(KOKKOS_VERSION)},
                 {"processor", processor()},
                 {"driver", first_line_of("/sys/module/nvidia/version")}};
  utsname system{};
  if (uname(&system) == 0) facts.push_back({"system", text(system.sysname, " ", system.release)});
#if defined(OSTRAKON_HAVE_NCCL)
  facts.push_back({"NCCL", comm::nccl_version()});
#endif
  for (const Fact& fact : math::gemm_facts(DType::bf16)) facts.push_back(fact);
  for (const char* name : {"OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_mtl", "UCX_TLS", "FI_PROVIDER",
                           "OMP_NUM_THREADS", "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IB_DISABLE",
                           "NCCL_P2P_DISABLE", "NCCL_SOCKET_IFNAME", "NCCL_ALGO", "NCCL_PROTO"})
    facts.push_back(variable(name));
  for (const std::string& file : files) facts.push_back({"file " + file, identity_of(file)});
  for (const Fact& fact : loaded_code()) facts.push_back(fact);
  return facts;
}

/// Clocks that are two seconds apart make times of files, and of logs, hard to compare.
Findings judge_time(const Table& table) {
  constexpr double most = 2.0;
  std::vector<double> times;
  for (const Answer& answer : table.answers) times.push_back(answer.rates.at(time_name));
  const double median = middle_of(times).median;
  Findings findings;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    const double off = times[place] - median;
    if (std::fabs(off) > most)
      findings.push_back({"versions",
                          text("time of day: ", print("%.1f s ", std::fabs(off)),
                               off > 0.0 ? "later" : "earlier", " than on most ranks"),
                          {rank},
                          {table.hosts[place]},
                          "let the host synchronize its clock (chronyc tracking)"});
  }
  return findings;
}

/// The nearest folder that exists.
std::string existing_folder(const std::string& path) {
  std::error_code none;
  fs::path folder = fs::absolute(path, none);
  while (!fs::is_directory(folder, none) && folder.has_relative_path())
    folder = folder.parent_path();
  return folder.string();
}

/// Writes, reads back and removes a file. Returns bytes per second; throws Error.
double disk_rate(const std::string& path, bool& is_right) {
  constexpr std::int64_t bytes = std::int64_t{16} << 20;
  std::vector<char> written(static_cast<std::size_t>(bytes)), read(written.size());
  for (std::size_t i = 0; i < written.size(); ++i)
    written[i] = static_cast<char>((i * 2654435761U) >> 13);
  double seconds = 0.0;
  {
    PlainFile file(path, PlainFile::Mode::create);
    const Stopwatch timer;
    file.write(0, bytes, written.data());
    file.sync();
    seconds = timer.seconds();
    file.drop_cache(0, bytes);
    file.read(0, bytes, read.data());
    file.close();
  }
  is_right = std::memcmp(written.data(), read.data(), written.size()) == 0;
  return static_cast<double>(bytes) / seconds;
}

}  // namespace

Facts loaded_code() {
  Facts facts;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        const std::string path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
        const std::string name =
            path.empty() ? "program" : "library " + fs::path(path).filename().string();
        if (name.find("linux-vdso") != std::string::npos) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = info->dlpi_phdr[i];
          if (part.p_type != PT_NOTE) continue;
          // NOLINTNEXTLINE(performance-no-int-to-ptr): the linker gives addresses as integers.
          const char* at = reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr);
          const char* const end = at + part.p_memsz;
          while (at + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) note;
            std::memcpy(&note, at, sizeof note);
            constexpr std::size_t alignment = 4;
            const auto padded = [](std::size_t size) {
              return (size + alignment - 1) / alignment * alignment;
            };
            const char* const owner = at + sizeof note;
            const char* const id = owner + padded(note.n_namesz);
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
                std::memcmp(owner, "GNU", 4) == 0) {
              std::string hex;
              for (std::size_t byte = 0; byte < note.n_descsz; ++byte)
                hex += print("%02x", static_cast<unsigned>(static_cast<unsigned char>(id[byte])));
              static_cast<Facts*>(to)->push_back({name, "build " + hex});
              return 0;
            }
            at = id + padded(note.n_descsz);
          }
        }
        return 0;
      },
      &facts);
  return facts;
}

Check versions(comm::Communicator& world, const std::vector<std::string>& files) {
  Check check;
  check.name = "versions";
  check.measure = [&world, files] {
    Answer answer;
    answer.facts = stated(files);
    world.barrier();
    answer.rates[time_name] =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    return answer;
  };
  check.judge = [](const Table& table) {
    Findings all = judge_facts(table, "versions", false,
                               "install or set the same on all hosts, or leave the host out");
    append(all, judge_time(table));
    return all;
  };
  return check;
}

Check folder(comm::Communicator& world, const std::string& path) {
  Check check;
  check.name = "folder";
  check.unit = "GB/s";
  check.may_vary = true;
  check.measure = [&world, path] {
    Answer answer;
    comm::Communicator host = comm::Communicator::split_shared_memory(world.mpi());
    const std::string name = world.broadcast(text(".ostrakon-preflight-", getpid()), 0);
    const std::string here = existing_folder(path);
    const std::string shared = here + "/" + name;
    std::string failure;
    if (world.rank() == 0) {
      try {
        PlainFile file(shared, PlainFile::Mode::create);
        file.write(0, static_cast<std::int64_t>(name.size()), name.data());
        file.close();
      } catch (const Error& error) {
        failure = error.what();
      }
    }
    world.barrier();
    if (!failure.empty()) answer.facts.push_back({disk_name, failure});
    answer.facts.push_back({sees_name, system_file(shared) == name ? yes : text("not in ", here)});
    world.barrier();
    std::error_code none;
    if (world.rank() == 0) fs::remove(shared, none);
    if (host.rank() == 0 && failure.empty()) {
      const std::string own = text(shared, "-", world.rank());
      try {
        bool is_right = false;
        answer.rates[write_name] = disk_rate(own, is_right);
        answer.facts.push_back({disk_name, is_right ? yes : "other bytes"});
      } catch (const Error& error) {
        answer.facts.push_back({disk_name, error.what()});
      }
      fs::remove(own, none);
    }
    return answer;
  };
  check.judge = [](const Table& table) {
    Findings all;
    for (int rank = 0; rank < table.ranks(); ++rank) {
      const auto place = static_cast<std::size_t>(rank);
      for (const char* name : {sees_name, disk_name}) {
        const std::string value = table.answers[place].fact(name);
        if (!value.empty() && value != yes)
          all.push_back({"folder",
                         text(name, ": ", printable(value), "; expected: ", yes),
                         {rank},
                         {table.hosts[place]},
                         "mount the folder of the run on this host, with space and the right to "
                         "write, or leave the host out"});
      }
    }
    const Rate writes = {write_name, "GB/s", 1e-9, 0.7,
                         "look at the host's way to the file system"};
    append(all, judge_rate(table, "folder", writes));
    return all;
  };
  return check;
}

}  // namespace ostrakon::preflight
