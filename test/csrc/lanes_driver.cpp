// Reads a script from stdin, one command a line, "<thread> <command> [arguments]", runs it on the
// solver lanes over the simulated CUDA runtime, and prints a JSON object per command and one at the
// end. Threads are real threads that take turns, so that thread-local state, the end of a thread
// and the end of the process are the real ones. See conftest.py for the commands.

#include <ATen/native/cuda/linalg/CUDASolverLanes.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "faulty_schedulers.h"
#include "simulated_cuda.h"

namespace {

namespace sl = at::native::solver_lanes;
using simulated::violation;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    out += c == '"' || c == '\\' || c < ' ' ? ' ' : c;
  }
  return out + "\"";
}

std::string json(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const auto& text : texts) {
    out += (out.size() > 1 ? ", " : "") + quoted(text);
  }
  return out + "]";
}

std::string json(const std::map<std::string, int>& counts) {
  std::string out = "{";
  for (const auto& [name, count] : counts) {
    out += (out.size() > 1 ? ", " : "") + quoted(name) + ": " + std::to_string(count);
  }
  return out + "}";
}

struct Result {
  std::ostringstream out;

  Result& raw(const char* key, const std::string& value) {
    out << (out.tellp() > 0 ? ", " : "") << quoted(key) << ": " << value;
    return *this;
  }
  Result& text(const char* key, const std::string& value) {
    return raw(key, quoted(value));
  }
};

Fault fault = Fault::kNone;

// ---- A call as ATen makes it ----

struct Blocks {
  cudaStream_t stream;
  std::vector<std::string> names;

  Blocks(cudaStream_t on, int64_t count) : stream(on) {
    for (int64_t i = 0; i < count; ++i) {
      names.push_back(simulated::allocate(stream));
    }
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  ~Blocks() {
    for (const auto& name : names) {
      simulated::release(stream, name);
    }
  }
  std::vector<simulated::Access> accesses(bool write) const {
    std::vector<simulated::Access> out;
    for (const auto& name : names) {
      out.push_back({name, write});
    }
    return out;
  }
};

// The first exception has to come out, unless only the wait of last resort failed.
void check_exception(const std::string& raised, const std::vector<simulated::Failure>& failures) {
  for (const auto& failure : failures) {
    if (failure.function == "cudaStreamSynchronize") {
      continue;
    }
    if (raised.empty()) {
      violation("a failure of " + failure.function + " was swallowed");
    } else if (
        failure.function != "cudaStreamGetCaptureInfo" &&
        raised != simulated::error_text(failure.number)) {
      violation("not the first exception came out: " + raised);
    }
    return;
  }
  if (!raised.empty()) {
    violation("an exception without a failure: " + raised);
  }
}

void check_lanes(int lanes, int64_t items, const char* reason) {
  const auto most = std::max<int64_t>(1, std::min<int64_t>(items, sl::limits().lanes));
  if (lanes < 1 || lanes > most) {
    violation("available_lanes returned " + std::to_string(lanes));
  }
  if ((lanes == 1) != (reason != nullptr)) {
    violation("a reason is due exactly when there is one lane");
  }
}

void call(int64_t items, int64_t throw_at, Result& result) {
  const int device = simulated::current_device();
  const auto current = simulated::current_stream(device);
  Blocks tensor(current, items);
  simulated::launch(current, "work before the call", tensor.accesses(true));

  simulated::take_failures();
  simulated::take_call_counts();
  const int existed = sl::created_lanes(0) + sl::created_lanes(1);
  const char* reason = nullptr;
  const int lanes = sl::available_lanes(items, &reason);
  check_lanes(lanes, items, reason);
  simulated::take_failures();
  result.raw("lanes", std::to_string(lanes)).text("reason", reason ? reason : "");
  result.raw("available_calls", json(simulated::take_call_counts()));
  if (sl::created_lanes(0) + sl::created_lanes(1) > existed &&
      sl::created_lanes(device) * sl::kHandleMiB > sl::limits().memory_mib) {
    violation("more handles were created than the limit allows");
  }

  std::string raised;
  const auto warned = simulated::warnings().size();
  {
    Blocks workspace(current, lanes);
    Blocks infos(current, lanes);
    simulated::launch(current, "zeroing of infos", infos.accesses(true));
    const int used = static_cast<int>(std::min<int64_t>(lanes, items));
    int64_t next = 0;
    std::set<cusolverDnHandle_t> handles;
    std::set<cudaStream_t> streams;
    const auto body = [&](const sl::Lane& lane, int64_t item) {
      if (item != next++ || (fault == Fault::kNone && lane.index != item % used) ||
          (lane.index == 0 && lane.stream != current)) {
        violation("items are not dealt out in turn, starting on the current stream");
      }
      handles.insert(lane.handle);
      streams.insert(lane.stream);
      const auto refuse = [](const char* what) {
        throw std::runtime_error(simulated::error_text(simulated::record_failure(what)));
      };
      if (item == throw_at) {
        refuse("the body");
      }
      const auto slot = static_cast<size_t>(fault == Fault::kSharedSlot ? 0 : lane.index);
      const bool accepted = simulated::solver_call(
          lane.handle,
          lane.stream,
          "item " + std::to_string(item),
          {{tensor.names[static_cast<size_t>(item)], true},
           {workspace.names[slot], true},
           {infos.names[slot], true}});
      if (!accepted) {
        refuse("a launch");
      }
    };
    try {
      for_each_with_fault(fault, items, lanes, body);
    } catch (const std::exception& error) {
      raised = error.what();
    }
    if (raised.empty() && items > 0 &&
        (static_cast<int>(handles.size()) != used || static_cast<int>(streams.size()) != used)) {
      violation("lanes share a handle or a stream");
    }
    // From here on the memory can be given to anyone on the current stream.
  }
  result.text("raised", raised).raw("run_calls", json(simulated::take_call_counts()));
  const auto failures = simulated::take_failures();
  check_exception(raised, failures);
  for (const auto& failure : failures) {
    if (failure.function == "cudaStreamSynchronize") {
      if (simulated::warnings().size() == warned) {
        violation("a lane was lost without a warning");
      }
      simulated::forgive();
    }
  }
  if (cudaGetLastError() != cudaSuccess) {
    violation("an error is left for the next launch check");
  }
  Blocks others(current, 2 * lanes);
  simulated::launch(current, "use of freed memory", others.accesses(true));
  simulated::launch(current, "work after the call", tensor.accesses(false));
}

// ---- Commands ----

void execute(const std::string& command, std::istringstream& arguments, Result& result) {
  const auto number = [&arguments](int64_t fallback = 0) {
    int64_t value = 0;
    return arguments >> value ? value : fallback;
  };
  const auto current = [] { return simulated::current_stream(simulated::current_device()); };
  if (command == "call") {
    const auto items = number();
    call(items, number(-1), result);
  } else if (command == "stream") {
    simulated::set_stream(static_cast<int>(number()));
  } else if (command == "device") {
    simulated::set_device(static_cast<int>(number()));
  } else if (command == "begin") {
    cudaStreamBeginCapture(current(), static_cast<cudaStreamCaptureMode>(number()));
  } else if (command == "end") {
    int graph = 0;
    const auto error = cudaStreamEndCapture(current(), &graph);
    result.raw("graph", std::to_string(graph));
    result.text("error", error == cudaSuccess ? "" : cudaGetErrorString(error));
    cudaGetLastError();
  } else if (command == "replay") {
    cudaGraphLaunch(static_cast<int>(number()), current());
  } else if (command == "synchronize") {
    cudaStreamSynchronize(current());
  } else if (command == "limits") {
    try {
      const auto lanes = static_cast<int>(number());
      sl::set_limits({lanes, number()});
    } catch (const std::exception& error) {
      result.text("raised", error.what());
    }
    const auto now = sl::limits();
    result.raw("lanes", std::to_string(now.lanes))
        .raw("memory_mib", std::to_string(now.memory_mib));
  } else if (command == "release") {
    simulated::drop_handles_of_thread();
    sl::release_lanes();
  } else if (command == "fail") {
    std::string function;
    arguments >> function;
    const auto nth = static_cast<int>(number(1));
    simulated::fail(function, nth, number() != 0);
  } else if (command == "capacity") {
    simulated::set_handle_capacity(static_cast<int>(number()));
  } else if (command == "fault") {
    fault = static_cast<Fault>(number());
  } else {
    throw std::invalid_argument("no such command: " + command);
  }
  for (int device = 0; device < 2; ++device) {
    if (sl::created_lanes(static_cast<c10::DeviceIndex>(device)) !=
        simulated::live_handles(device)) {
      violation("created_lanes does not tell the number of handles");
    }
  }
  result.raw("handles", std::to_string(simulated::live_handles(0) + simulated::live_handles(1)));
}

class Worker {
 public:
  explicit Worker(int number) : thread_([this, number] { loop(number); }) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    run(nullptr);
    thread_.join();
  }

  // Runs the task on the thread and waits for it; none ends the thread.
  void run(std::function<void()> task) {
    std::unique_lock<std::mutex> lock(mutex_);
    task_ = std::move(task);
    pending_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !pending_; });
  }

 private:
  void loop(int number) {
    simulated::enter_thread(number);
    std::unique_lock<std::mutex> lock(mutex_);
    for (bool more = true; more;) {
      changed_.wait(lock, [this] { return pending_; });
      more = task_ != nullptr;
      if (more) {
        task_();
      }
      pending_ = false;
      changed_.notify_all();
    }
    simulated::leave_thread();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;
  bool pending_ = false;
  std::thread thread_;
};

// Threads that do not take turns; for the thread sanitizer.
void stress(int threads, int calls) {
  std::vector<std::thread> all;
  for (int number = 1; number <= threads; ++number) {
    all.emplace_back([number, calls] {
      simulated::enter_thread(number);
      simulated::set_stream(number);
      for (int i = 0; i < calls; ++i) {
        const char* reason = nullptr;
        const int lanes = sl::available_lanes(2 + i % 5, &reason);
        sl::for_each_on_lanes(2 + i % 5, lanes, [](const sl::Lane& lane, int64_t) {
          simulated::solver_call(lane.handle, lane.stream, "item", {});
        });
        if (i == calls / 2) {
          simulated::drop_handles_of_thread();
          sl::release_lanes();
          sl::set_limits({3 + number % 2, 1600});
        }
      }
      simulated::leave_thread();
    });
  }
  for (auto& thread : all) {
    thread.join();
  }
}

}  // namespace

int main() {
  simulated::enter_thread(0);
  // A warning may take a lock of the program's: a helper that holds one of its own by then can
  // deadlock.
  simulated::on_warning([] {
    auto free = std::async(std::launch::async, [] { return sl::created_lanes(0); });
    if (free.wait_for(std::chrono::seconds(1)) != std::future_status::ready) {
      std::cout
          << "{\"op\": \"end\", \"violations\": [\"a warning was given under the pool's lock\"]}\n";
      std::cout.flush();
      std::_Exit(0);
    }
  });
  std::map<int, std::unique_ptr<Worker>> workers;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty()) {
      continue;
    }
    std::istringstream arguments(line);
    int thread = 0;
    std::string command;
    arguments >> thread >> command;
    Result result;
    result.text("op", command);
    if (command == "exit") {
      workers.erase(thread);
    } else if (command == "stress") {
      int calls = 0;
      arguments >> calls;
      stress(thread, calls);
    } else if (thread == 0) {
      execute(command, arguments, result);
    } else {
      auto& worker = workers[thread];
      if (!worker) {
        worker = std::make_unique<Worker>(thread);
      }
      worker->run([&] { execute(command, arguments, result); });
    }
    std::cout << "{" << result.out.str() << "}\n";
  }
  workers.clear();
  std::cout << "{\"op\": \"end\", \"violations\": " << json(simulated::violations())
            << ", \"warnings\": " << json(simulated::warnings()) << "}\n";
  std::cout.flush();
  simulated::end_of_process();
  return 0;
}
