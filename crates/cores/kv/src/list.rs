const NIL: u32 = u32::MAX;

/// Members of `0..n` from the least to the most recently added; all operations but checks take constant time.
///
/// The caller knows who is a member: removing one that is not, or adding one twice, breaks the list.
#[derive(Debug)]
pub(crate) struct LruList {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
    len: u32,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
}

impl LruList {
    pub(crate) fn new() -> Self {
        Self { links: Vec::new(), oldest: NIL, newest: NIL, len: 0 }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NIL).then_some(self.oldest)
    }

    /// Adds `id` as the most recent.
    pub(crate) fn push(&mut self, id: u32) {
        if self.links.len() <= id as usize {
            self.links.resize(id as usize + 1, Link { older: NIL, newer: NIL });
        }
        self.links[id as usize] = Link { older: self.newest, newer: NIL };
        match self.newest {
            NIL => self.oldest = id,
            newest => self.links[newest as usize].newer = id,
        }
        self.newest = id;
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, id: u32) {
        let Link { older, newer } = self.links[id as usize];
        match older {
            NIL => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NIL => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        self.len -= 1;
    }

    pub(crate) fn pop_oldest(&mut self) -> Option<u32> {
        let id = self.oldest()?;
        self.remove(id);
        Some(id)
    }

    /// The members, oldest first, or what is wrong with the links.
    pub(crate) fn checked(&self) -> Result<Vec<u32>, String> {
        let mut members = Vec::new();
        let (mut older, mut id) = (NIL, self.oldest);
        while id != NIL {
            if members.len() == self.len as usize {
                return Err(format!("the list goes on after its {} members", self.len));
            }
            let link = self.links[id as usize];
            if link.older != older {
                return Err(format!("{id} follows {older} and names {}", link.older));
            }
            members.push(id);
            (older, id) = (id, link.newer);
        }
        if older != self.newest || members.len() != self.len as usize {
            return Err(format!("the list ends at {older} after {} of {} members", members.len(), self.len));
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_a_queue_with_removal(operations in proptest::collection::vec(0u32..20, 0..200)) {
            let mut list = LruList::new();
            let mut model: Vec<u32> = Vec::new();
            for id in operations {
                if id == 19 {
                    let oldest = (!model.is_empty()).then(|| model.remove(0));
                    prop_assert_eq!(list.pop_oldest(), oldest);
                } else if let Some(at) = model.iter().position(|member| *member == id) {
                    model.remove(at);
                    list.remove(id);
                } else {
                    model.push(id);
                    list.push(id);
                }
                prop_assert_eq!(list.checked(), Ok(model.clone()));
            }
        }
    }
}
