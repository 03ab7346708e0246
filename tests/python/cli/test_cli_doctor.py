"""The verb doctor, against machines imitated by folders of kernel files."""

import json
from pathlib import Path

import pytest
from test_cli_newcomer import PYTHON

from forebay.cli.checks import ADVICE, OK, UNKNOWN, WARNING, examine
from forebay.cli.doctor import status
from forebay.cli.machine import Machine

GIB = 1 << 30

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
30 27 254:16 / /data rw,noatime shared:2 master:3 - xfs /dev/vdb rw
31 27 0:40 / /mem rw,relatime - tmpfs tmpfs rw,size=16g
32 27 0:41 / /my\\040share rw,relatime - nfs4 host:/export rw
33 27 0:42 / /layer rw,relatime - overlay overlay rw,volatile
34 27 0:43 /sub /cow rw,relatime - btrfs /dev/vdc rw,subvol=/sub
35 27 254:16 / /unsafe rw,noatime - ext4 /dev/vdb rw,nobarrier
36 27 253:0 / /volume rw,relatime - ext4 /dev/mapper/volume rw
37 27 0:44 / /strict rw - zonefs none rw
"""

FILES = {
    "proc/self/mountinfo": MOUNTS,
    "proc/self/limits": (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            1024                 524288               files     \n"
        "Max locked memory         8388608              8388608              bytes     \n"
    ),
    "proc/meminfo": "MemTotal:       33554432 kB\nMemAvailable:   16777216 kB\n",
    "proc/swaps": "Filename  Type  Size  Used  Priority\n/dev/vda2 partition 1000 0 -2\n",
    "proc/sys/vm/swappiness": "60\n",
    "proc/sys/vm/dirty_bytes": "0\n",
    "proc/sys/vm/dirty_ratio": "20\n",
    "proc/sys/vm/dirty_background_bytes": "0\n",
    "proc/sys/vm/dirty_background_ratio": "10\n",
    "proc/sys/vm/zone_reclaim_mode": "0\n",
    "proc/sys/vm/max_map_count": "65530\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
}


def add_disk(root, folder, *, scheduler="[none] mq-deadline", cache="write back", turns=0):
    queue = root / folder / "queue"
    queue.mkdir(parents=True)
    (queue / "scheduler").write_text(scheduler + "\n")
    (queue / "write_cache").write_text(cache + "\n")
    (queue / "rotational").write_text(f"{turns}\n")


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    devices = tmp_path / "sys" / "devices"
    add_disk(tmp_path, "sys/devices/vda", scheduler="none [bfq]")
    (devices / "vda" / "vda1").mkdir()
    add_disk(tmp_path, "sys/devices/vdb")
    add_disk(tmp_path, "sys/devices/vdc", cache="write through", turns=1)
    add_disk(tmp_path, "sys/devices/dm-0", scheduler="none", cache="write through", turns=1)
    by_number, by_name = tmp_path / "sys" / "dev" / "block", tmp_path / "sys" / "class" / "block"
    by_number.mkdir(parents=True)
    by_name.mkdir(parents=True)
    (by_number / "254:1").symlink_to(devices / "vda" / "vda1")
    (by_number / "254:16").symlink_to(devices / "vdb")
    (by_number / "253:0").symlink_to(devices / "dm-0")
    (by_name / "vdc").symlink_to(devices / "vdc")
    (devices / "dm-0" / "slaves").mkdir()
    (devices / "dm-0" / "slaves" / "vda1").symlink_to(devices / "vda" / "vda1")
    return tmp_path


def look(root, path="/data/store", *, free=100 * GIB, **options):
    checks = examine(path, Machine(root), free_space=lambda _path: free, **options)
    return {check.name: check for check in checks}


def verdicts(found):
    return {name: check.verdict for name, check in found.items() if check.verdict != OK}


def test_a_machine_that_follows_all_advice_passes(root):
    (root / "proc/sys/vm/swappiness").write_text("1")
    found = look(root)
    assert verdicts(found) == {}
    assert found["file system"].value == "xfs at /data"
    assert found["I/O scheduler"].value == "none"
    assert found["dirty limit"].value == "vm.dirty_ratio = 20, 3.2 GiB"
    assert found["locked memory"].value == "8.0 MiB"


def test_a_machine_that_reports_nothing_is_unknown_and_not_a_failure(tmp_path):
    found = look(tmp_path, free=None)
    assert set(verdicts(found).values()) == {UNKNOWN}
    assert len(verdicts(found)) == len(found)
    assert status(list(found.values())) == 0


def test_files_that_hold_nonsense_are_unknown(root):
    for name in FILES:
        (root / name).write_bytes(b"\xff [ - \n - - \n1 2 3 4 5 6 - \n")
    assert set(verdicts(look(root)).values()) <= {UNKNOWN}


@pytest.mark.parametrize(
    ("path", "verdict", "part"),
    [
        ("/store", OK, "ext4 at /"),
        ("/data", OK, "xfs at /data"),
        ("/database", OK, "ext4 at /"),
        ("/mem/store", WARNING, "tmpfs"),
        ("/my share/store", WARNING, "nfs4 at /my share"),
        ("/layer/store", WARNING, "overlay"),
        ("/cow/store", ADVICE, "btrfs"),
        ("/strict", UNKNOWN, "zonefs"),
    ],
)
def test_the_file_system_is_judged(root, path, verdict, part):
    check = look(root, path)["file system"]
    assert check.verdict == verdict
    assert part in check.value
    assert check.advice


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("/data", OK),
        ("/store", OK),
        ("/layer/x", WARNING),
        ("/unsafe", WARNING),
        ("/strict", ADVICE),
    ],
)
def test_mount_options_are_judged(root, path, verdict):
    assert look(root, path)["mount options"].verdict == verdict


def test_a_cache_that_syncs_do_not_empty_is_a_warning(root):
    assert look(root, "/data")["write cache"].verdict == OK
    assert look(root, "/unsafe")["write cache"].verdict == WARNING


def test_the_scheduler_of_the_disk_below_a_partition_or_a_volume_counts(root):
    for path in ("/store", "/volume/store"):
        check = look(root, path)["I/O scheduler"]
        assert (check.value, check.verdict) == ("bfq", ADVICE)


def test_a_file_system_without_a_number_is_found_by_its_source(root):
    found = look(root, "/cow/store")
    assert found["write cache"].value == "write through"
    assert found["I/O scheduler"].verdict == ADVICE, "a disk that turns, without a scheduler"


@pytest.mark.parametrize(
    ("file", "text", "name", "verdict"),
    [
        ("proc/sys/vm/swappiness", "60", "vm.swappiness", ADVICE),
        ("proc/swaps", "Filename Type\n", "vm.swappiness", OK),
        ("proc/sys/vm/dirty_bytes", str(100 << 20), "dirty limit", ADVICE),
        ("proc/sys/vm/dirty_ratio", "2", "dirty limit", ADVICE),
        ("proc/sys/vm/dirty_background_ratio", "50", "dirty background limit", ADVICE),
        ("proc/sys/vm/dirty_background_bytes", str(5 * GIB), "dirty background limit", ADVICE),
        ("proc/sys/vm/zone_reclaim_mode", "1", "vm.zone_reclaim_mode", ADVICE),
        ("proc/sys/vm/max_map_count", "1000", "vm.max_map_count", ADVICE),
        ("proc/self/limits", "Max open files   256   4096   files\n", "open files", ADVICE),
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet",
            "clock source",
            ADVICE,
        ),
    ],
)
def test_kernel_settings_are_judged(root, file, text, name, verdict):
    (root / file).write_text(text)
    check = look(root)[name]
    assert check.verdict == verdict
    assert check.advice


def test_space_for_a_log_file_is_required(root):
    assert look(root, free=GIB)["free space"].verdict == ADVICE
    assert look(root, free=2 * GIB)["free space"].verdict == OK


def test_the_limit_of_locked_memory_matters_only_with_lock_memory(root):
    assert look(root, lock_memory=True)["locked memory"].verdict == ADVICE
    (root / "proc/self/limits").write_text("Max locked memory  unlimited  unlimited  bytes\n")
    check = look(root, lock_memory=True)["locked memory"]
    assert (check.value, check.verdict) == ("unlimited", OK)


@pytest.mark.parametrize("lock_memory", [False, True])
def test_no_advice_is_in_the_words_of_python(root, lock_memory):
    checks = look(root, lock_memory=lock_memory)
    assert "lock_memory" in checks["locked memory"].advice
    assert [check for check in checks.values() if PYTHON.findall(check.advice)] == []


def test_only_warnings_change_the_exit_status(root):
    assert status(list(look(root).values())) == 0
    assert status(list(look(root, "/mem/store").values())) == 1


def test_the_verb_prints_a_table_and_what_to_do(run, tmp_path):
    found, out, err = run("doctor", tmp_path / "not" / "there")
    lines = out.decode().splitlines()
    assert found in (0, 1)
    assert err == ""
    assert lines[0].split() == ["check", "found", "verdict"]
    assert lines[1].startswith("file system")
    assert not (tmp_path / "not").exists()


def test_the_verb_writes_json(run, tmp_path):
    _, out, _ = run("doctor", tmp_path, "--json")
    document = json.loads(out)
    assert document["path"] == str(tmp_path)
    assert set(document["checks"][0]) == {"name", "value", "verdict", "advice"}
    free = next(check for check in document["checks"] if check["name"] == "free space")
    assert free["verdict"] in (OK, ADVICE)


def test_the_tuning_page_describes_every_check(root):
    page = (Path(__file__).parents[3] / "docs" / "tuning.md").read_text(encoding="utf-8")
    missing = [name for name in look(root) if f"`{name}`" not in page]
    assert missing == []


def test_saved_options_that_cannot_be_read_are_named(root, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    options = store / "forebay.options"
    assert "saved options" not in look(root, str(store))
    for content, verdict, value in (
        (b'{"flush": "sync", "default_queues": 2}', OK, "default_queues, flush"),
        (b"{}", OK, ""),
        (b'{"flush": "sy', ADVICE, "damaged"),
        (b"[1]", ADVICE, "damaged"),
        (b"\xff\0", ADVICE, "damaged"),
        (b"[" * 100_000, ADVICE, "damaged"),
    ):
        options.write_bytes(content)
        check = look(root, str(store))["saved options"]
        assert (check.verdict, check.value) == (verdict, value)
        assert ("forebay repair" in check.advice) == (verdict == ADVICE)
    for wrong in (
        *({"default_queues": 0}, {"default_queues": "x"}, {"flush": "never"}, {"checksum": []}),
        *({"segment_bytes": 5}, {"compression": "brotli"}, {"delay_levels": "soon"}),
    ):
        options.write_text(json.dumps({"max_message_size": 4096, "colour": "red"} | wrong))
        check = look(root, str(store))["saved options"]
        assert (check.verdict, check.value) == (ADVICE, "invalid"), wrong
        assert check.advice.startswith(f"invalid value for {next(iter(wrong))}: ")
    right = {"segment_ms": 1000, "compression": "zstd", "flush": "async", "delay_levels": "1s 5m"}
    options.write_text(json.dumps(right | {"colour": "red"}))
    assert look(root, str(store))["saved options"].verdict == OK
    options.unlink()
    options.mkdir()
    assert look(root, str(store))["saved options"].verdict == UNKNOWN
