use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::HostIdentity;
use crate::store::tests::numbering;
use snowbank_id::layout::Layout;
use snowbank_id::numbering::TicketCounter;

/// Locks worker 1 of Twitter's layout.
fn lock(directory: &Path) -> Result<WorkerLocks, StateError> {
    lock_workers(directory, &numbering("twitter", "1"))
}

fn only_lock(directory: &Path) -> PathBuf {
    fs::read_dir(directory).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn a_removed_or_replaced_lock_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let locks = lock(directory.path()).unwrap();
    assert_eq!(locks.still_ours(), Ok(()));
    let path = only_lock(directory.path());
    fs::remove_file(&path).unwrap();
    let lost = locks.still_ours().unwrap_err();
    assert!(lost.to_string().contains("was removed"), "{lost}");
    let _other = lock(directory.path()).unwrap();
    let lost = locks.still_ours().unwrap_err();
    assert!(lost.to_string().contains("was replaced"), "{lost}");
}

/// `chmod -R` or a backup may have touched the files. Nobody else could write them.
#[test]
fn a_mark_stays_if_only_its_own_users_could_write_it() {
    let directory = tempfile::tempdir().unwrap();
    let mark = marked(7, &Owner::new());
    lock(directory.path()).unwrap().mark(&mark).unwrap();
    let path = only_lock(directory.path());
    let found = || fs::metadata(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let writers = writers_of(directory.path()).unwrap();
    assert_eq!(free_mark(&path, writers).unwrap(), Some(mark.clone()));
    assert_eq!(lock(directory.path()).unwrap().own_marks(), Ok(vec![mark.clone()]));
    assert_eq!(found().mode() & 0o777, 0o600, "others could lock it");
    // The directory is a group's by now.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o770)).unwrap();
    std::os::unix::fs::chown(directory.path(), None, Some(4444)).unwrap_or_default();
    assert_eq!(lock(directory.path()).unwrap().own_marks(), Ok(vec![mark.clone()]));
    assert_eq!(found().mode() & 0o777, 0o660);

    let other_name = directory.path().join("copy");
    fs::hard_link(&path, &other_name).unwrap();
    for refused in [lock(directory.path()).unwrap_err(), free_marks(vec![path], writers).unwrap_err()] {
        assert!(refused.to_string().contains("it has 2 names"), "{refused}");
    }
    fs::remove_file(&other_name).unwrap();
    assert_eq!(lock(directory.path()).unwrap().own_marks(), Ok(vec![mark]));
}

/// If every user can write a lock file, the thread that locks it removes it and makes a new one.
/// Another thread may then lock the removed file, although the new file has its name.
#[test]
fn a_lock_file_that_all_may_write_is_held_at_most_once() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..20 {
        drop(lock(directory.path()).unwrap());
        let open = fs::Permissions::from_mode(0o666);
        fs::set_permissions(only_lock(directory.path()), open).unwrap();
        let all_begin = std::sync::Barrier::new(4);
        let locked = std::thread::scope(|threads| {
            let lock_now = || {
                all_begin.wait();
                lock(directory.path()).ok()
            };
            let threads: Vec<_> = (0..4).map(|_| threads.spawn(lock_now)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(locked.len() <= 1, "{locked:?}");
        assert!(locked.iter().all(|locks| locks.still_ours().is_ok()), "{locked:?}");
    }
}

/// A start must not read every lock file, because a machine gets one for each worker ID that a
/// fleet ever assigned to it.
#[test]
fn a_start_skips_locks_of_other_worker_ids_in_its_space() {
    let directory = tempfile::tempdir().unwrap();
    let [beside, other_space] = ["twitter", "sonyflake"]
        .map(|layout| lock_workers(directory.path(), &numbering(layout, "5")).unwrap());
    let make_unreadable = |locks: &WorkerLocks| fs::write(locks.furthest(), "held\n").unwrap();
    make_unreadable(&beside);
    drop(lock(directory.path()).unwrap());
    make_unreadable(&other_space);
    let refused = lock(directory.path()).unwrap_err();
    assert!(refused.to_string().contains("in a form that this release does not know"), "{refused}");
}

/// Worker 1 of Twitter's layout and worker 0 of a layout with a wider sequence can make the same
/// IDs.
#[test]
fn a_mark_counts_for_colliding_worker_ids_of_another_layout() {
    let directory = tempfile::tempdir().unwrap();
    let owner = Owner::new();
    let colliding = |worker| {
        let layout = "time:41,worker:9,sequence:13;tick=1ms;epoch=1288834974657";
        lock_workers(directory.path(), &numbering(layout, worker))
    };
    let mut locks = lock(directory.path()).unwrap();
    locks.mark_for(&owner);
    locks.mark_granted(7).unwrap();
    assert!(colliding("0").unwrap_err().to_string().contains("can make the same IDs as number 1 of"));
    drop(locks);
    let found = colliding("0").unwrap();
    assert_eq!(found.marks().unwrap(), [marked(7, &owner)]);
    assert_eq!(found.marks_of_source().unwrap(), []);
    assert!(found.is_of_kin(found.furthest()), "the mark is in the lock of the other layout");
    drop(found);
    assert_eq!(colliding("1").unwrap().marks().unwrap(), [], "worker 1 of that layout makes other IDs");
}

fn marked(id_bound: u64, owner: &Owner) -> Mark {
    Mark::granted(id_bound, &owner.state)
}

#[test]
fn a_mark_outlives_its_holder_and_can_be_lowered() {
    let directory = tempfile::tempdir().unwrap();
    let owner = Owner::new();
    let mut locks = lock(directory.path()).unwrap();
    assert_eq!(locks.marks().unwrap(), []);
    locks.mark_granted(7).unwrap();
    assert_eq!(locks.marks().unwrap(), [], "a daemon without a state leaves no mark");
    for id_bound in [7, u64::MAX, 3] {
        locks.mark_for(&owner);
        locks.mark_granted(id_bound).unwrap();
        drop(locks);
        locks = lock(directory.path()).unwrap();
        assert_eq!(locks.marks().unwrap(), [marked(id_bound, &owner)]);
    }
    assert!(!locks.is_of_kin(locks.furthest()), "the mark is in the source's own lock");
    locks.mark_for(&owner);
    locks.mark_granted(3).unwrap();
    locks.mark_as(Fate::Returned).unwrap();
    assert_eq!(locks.marks().unwrap(), [Mark { fate: Fate::Returned, ..marked(3, &owner) }]);
    let text = fs::read_to_string(only_lock(directory.path())).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn a_worker_id_that_is_given_back_ungranted_is_no_proof_for_a_copy_of_the_state() {
    let directory = tempfile::tempdir().unwrap();
    let owner = Owner::new();
    let mut locks = lock(directory.path()).unwrap();
    locks.mark_for(&owner);
    locks.mark_as(Fate::Returned).unwrap();
    assert!(locks.own_marks().unwrap().is_empty(), "nothing was granted");
    locks.mark(&marked(7, &owner)).unwrap();
    locks.mark_for(&Owner::new());
    locks.mark_as(Fate::Returned).unwrap();
    assert_eq!(locks.own_marks().unwrap(), [marked(7, &owner)], "another state's mark stays");
    locks.mark_for(&owner);
    locks.mark_as(Fate::Returned).unwrap();
    assert_eq!(locks.own_marks().unwrap(), [Mark { fate: Fate::Returned, ..marked(7, &owner) }]);
}

#[test]
fn the_highest_of_several_records_gets_the_worker_ids_lock() {
    let directory = tempfile::tempdir().unwrap();
    let owner = Owner::new();
    let record = |name: &str, workers: &str, tick: u64| {
        let numbering = numbering("twitter", workers);
        let ceiling = numbering.first_of(snowbank_id::layout::Tick(tick));
        Record::new(name, &numbering, ceiling, &owner, &HostIdentity::default())
    };
    let records = [record("old", "0-2", 500), record("new", "2-3", 900), record("older", "1,2", 100)];
    let locks = lock_records(directory.path(), &records).unwrap();
    let counts: Vec<usize> = locks.iter().map(|locks| locks.files.len()).collect();
    assert_eq!(counts, [2, 2, 0]);
    for (record, locks) in records.iter().zip(&locks) {
        locks.mark(&marked(record.id_bound, &owner)).unwrap();
    }
    drop(locks);
    let marks = lock_workers(directory.path(), &records[2].numbering).unwrap().marks().unwrap();
    assert_eq!(marks, [marked(records[0].id_bound, &owner), marked(records[1].id_bound, &owner)]);
}

#[test]
fn a_holders_line_has_room_for_the_longest_id_space() {
    let fields: String = (0..30).map(|at| format!(",r{at}:1:random,c{at}:1:constant(1)")).collect();
    let layout = format!("time:1,sequence:1{fields};tick=86400000ms;epoch=-9000000000000");
    let space = Layout::resolve(&layout).unwrap().space();
    let longest = format!("process {}, worker ID {}, {space}\n", u32::MAX, u64::MAX);
    assert!(longest.len() > 512 && longest.len() <= HOLDER_BYTES as usize, "{}", longest.len());
}

#[test]
fn a_held_lock_names_its_holder() {
    let directory = tempfile::tempdir().unwrap();
    let _locks = lock(directory.path()).unwrap();
    let refused = lock(directory.path()).unwrap_err();
    assert!(refused.to_string().contains(&format!("(process {})", std::process::id())), "{refused}");
}

/// The halves of a counter and the whole have a lock each. What a command says of one lock holds for
/// all that can hand out the same numbers.
#[test]
fn a_command_replaces_contrary_marks_of_the_same_counter() {
    let directory = tempfile::tempdir().unwrap();
    let owner = Owner::new();
    let counter = |increment, offset| {
        let counter = TicketCounter::new("orders", increment, offset).unwrap();
        let mut locks = lock_workers(directory.path(), &Numbering::Ticket(counter)).unwrap();
        locks.mark_for(&owner);
        locks
    };
    let bounds = |increment, offset| {
        let marks = counter(increment, offset).marks().unwrap();
        marks.iter().map(|mark| mark.id_bound).max().unwrap()
    };
    counter(2, 2).mark_granted(7).unwrap();
    counter(1, 1).mark(&Mark { fate: Fate::Released, ..marked(7, &owner) }).unwrap();
    assert!(counter(2, 2).marks().unwrap().iter().any(Mark::is_released));
    // An import brings the counter back, even if the new mark has the same bound.
    counter(2, 2).mark_anew(&marked(7, &owner)).unwrap();
    assert!(!counter(2, 2).marks().unwrap().iter().any(Mark::is_released));
    counter(2, 1).mark_granted(1_001).unwrap();
    counter(2, 2).mark_granted(2_001).unwrap();
    assert_eq!((bounds(1, 1), bounds(2, 1)), (2_001, 1_001));
    counter(1, 1).mark_anew(&marked(11, &owner)).unwrap();
    assert_eq!((bounds(1, 1), bounds(2, 1), bounds(2, 2)), (11, 11, 11));
    // A higher bound of the odd numbers does not raise the even ones.
    counter(2, 1).mark_anew(&marked(101, &owner)).unwrap();
    assert_eq!((bounds(1, 1), bounds(2, 1), bounds(2, 2)), (101, 101, 11));
}

/// Whoever cut the file off may have removed its mark. The refused start must not make it look whole.
#[test]
fn a_lock_file_that_is_cut_off_is_refused_until_it_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    lock(directory.path()).unwrap().mark(&marked(7, &Owner::new())).unwrap();
    let path = only_lock(directory.path());
    let whole = fs::read(&path).unwrap();
    for length in [1, HOLDER_BYTES as usize - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        for _ in 0..2 {
            let refused = lock(directory.path()).unwrap_err();
            assert_eq!(refused.cause(), Cause::Damaged);
            assert!(refused.to_string().contains(&format!("it has {length} bytes")), "{refused}");
        }
    }
    // A daemon that was killed when it had made the file has left an empty one.
    fs::write(&path, "").unwrap();
    assert_eq!(lock(directory.path()).unwrap().own_marks(), Ok(vec![]));
    fs::write(&path, &whole).unwrap();
    assert_eq!(lock(directory.path()).unwrap().own_marks().unwrap()[0].id_bound, 7);
}

/// Whoever may write a directory can put another one in the place of those below it.
#[test]
fn all_directories_on_the_way_through_links_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for below in ["open/x/locks", "closed"] {
        fs::create_dir_all(at(below)).unwrap();
    }
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::symlink("../open/x", at("closed/link")).unwrap();
    std::os::unix::fs::symlink(at("closed/link"), at("link")).unwrap();
    std::os::unix::fs::symlink("circle", at("circle")).unwrap();
    for path in ["open/x/locks", "closed/link/locks", "link/locks", "circle/locks"] {
        assert!(lock(&at(path)).is_err(), "{path}");
    }
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(lock(&at("link/locks")).is_ok());
}
